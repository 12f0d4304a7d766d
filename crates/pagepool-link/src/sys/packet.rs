//! Packet sockets that receive nothing, held open for an interface's mode: include/uapi/linux/if_packet.h,
//! v7.3.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sys::socket;

/// A socket that keeps an interface in promiscuous mode while it is open.
pub(crate) fn promiscuous(index: u32) -> io::Result<OwnedFd> {
    let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?; // without a protocol: it receives nothing
    let membership = libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    socket::set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(fd)
}
