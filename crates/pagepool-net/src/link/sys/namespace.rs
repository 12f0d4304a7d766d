//! Enters a network namespace: setns(2).

// UNSAFETY: a system call; its wrapper says what makes it sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Moves the calling thread, and no other, permanently into the network namespace of an open file.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes integers, and touches no memory of ours.
    let done = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
