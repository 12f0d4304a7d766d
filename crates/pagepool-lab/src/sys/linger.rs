//! How a connection ends that is not shut down properly: socket(7).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Whether closing the socket, also by a kill, discards the connection and its data at once; otherwise the
/// kernel continues it alone. A socket accepted from a listener inherits the setting.
pub(crate) fn forget_on_close(socket: BorrowedFd<'_>, forget: bool) -> io::Result<()> {
    Ok(set_socket_linger(socket, forget.then_some(Duration::ZERO))?)
}
