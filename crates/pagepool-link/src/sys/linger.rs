//! How a connection ends that is not shut down properly: socket(7).

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::socket::set_option;

/// Whether closing the socket, also by a kill, discards the connection and its data at once; otherwise the
/// kernel continues it alone. A socket accepted from a listener inherits the setting.
pub(crate) fn forget_on_close(socket: BorrowedFd<'_>, forget: bool) -> io::Result<()> {
    let linger = libc::linger { l_onoff: forget.into(), l_linger: 0 };
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}
