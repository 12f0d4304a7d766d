//! How a connection ends that is not ended in the proper way: socket(7).

// UNSAFETY: a system call is a foreign function.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether closing the socket forgets the connection, and what is in it, at once. Also when the process is killed;
/// otherwise the kernel goes on without it. A socket accepted from a listener begins as that is.
pub(crate) fn forget_on_close(socket: BorrowedFd<'_>, forget: bool) -> io::Result<()> {
    let linger = libc::linger { l_onoff: forget.into(), l_linger: 0 };
    let (at, len) = ((&raw const linger).cast(), size_of_val(&linger) as libc::socklen_t);
    // SAFETY: the kernel reads the struct, which lives as long as the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
