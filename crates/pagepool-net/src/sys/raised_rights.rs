//! Whether the program has more rights than the user who started it.

// UNSAFETY: a call of the C library.
#![expect(unsafe_code)]

/// Whether a user with fewer rights set the environment: the program file is set-user-ID or has capabilities.
pub(crate) fn are_raised() -> bool {
    // SAFETY: the call takes an integer, and reads what the kernel passed to the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
