//! Moves a thread to a new network namespace.

// UNSAFETY: a system call; the wrapper says what makes it sound.
#![expect(unsafe_code)]

use std::io;

/// Moves only the calling thread to a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the call takes an integer, and touches no memory of ours.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
