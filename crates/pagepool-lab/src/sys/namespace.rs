//! Leaving a network namespace for a new one.

// UNSAFETY: a system call, whose wrapper says what makes it sound.
#![expect(unsafe_code)]

use std::io;

/// Gives the calling thread, and no other, a network namespace of its own.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the call takes an integer, and touches no memory of ours.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
