//! Network namespaces of threads: setns(2), unshare(2).

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::socket::done;

/// Moves the calling thread, and no other, permanently into the network namespace of an open file.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes integers, and touches no memory of ours.
    done(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Moves only the calling thread to a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the call takes an integer, and touches no memory of ours.
    done(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}
