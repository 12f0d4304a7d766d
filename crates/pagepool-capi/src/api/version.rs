//! The version of the library.

// UNSAFETY: an exported function.
#![expect(unsafe_code)]

use std::ffi::c_char;

/// Returns the version of the library, such as "0.1.0".
///
/// Thread: any.
/// Ownership: the text is the library's. It stays valid until the process ends.
/// Cost: returns a constant.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
