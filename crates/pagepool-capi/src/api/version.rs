//! Which version this is.

// UNSAFETY: a function with a fixed name.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The library's version, as "0.1.0".
///
/// Thread: any. Ownership: the text is the library's, for good. Cost: none.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_version() -> *const c_char {
    VERSION.as_ptr()
}
