//! Whether the program has more rights than who started it.

// UNSAFETY: the C library is asked, by a function of its own.
#![expect(unsafe_code)]

/// Whether the environment is that of somebody with fewer rights: the file of the program is set-user-ID, or
/// has capabilities.
pub(crate) fn are_raised() -> bool {
    // SAFETY: the call takes an integer, and reads what the kernel gave the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
