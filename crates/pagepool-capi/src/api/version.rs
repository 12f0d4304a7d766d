//! Which version this is.

// UNSAFETY: a function with a fixed name.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// Gives the version of the library, as "0.1.0".
///
/// Thread: any.
/// Ownership: the text is the library's and stays.
/// Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_version() -> *const c_char {
    VERSION.as_ptr()
}
