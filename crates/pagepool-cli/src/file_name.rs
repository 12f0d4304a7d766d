//! File names in options.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

/// Reads the name of a file or a folder. Refuses `-`: some programs take it for standard output, and a file
/// of this name would be a surprise.
pub fn file_name() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|name: OsString| match name.to_str() {
        Some("-") => Err("`-` is not standard input or output here; for a file of that name use `./-`"),
        _ => Ok(PathBuf::from(name)),
    })
}
