//! How a connection ends that is not ended in the proper way: socket(7).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Whether closing the socket forgets the connection, and what is in it, at once. Also when the process is
/// killed; otherwise the kernel goes on without it. A socket accepted from a listener begins as that is.
pub(crate) fn forget_on_close(socket: BorrowedFd<'_>, forget: bool) -> io::Result<()> {
    Ok(set_socket_linger(socket, forget.then_some(Duration::ZERO))?)
}
