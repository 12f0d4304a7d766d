//! A socket to the kernel's tables of links, addresses and routes: include/uapi/linux/netlink.h, v7.3.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::socket;

/// A socket for a netlink protocol in the network namespace of the calling thread, whose errors have texts.
pub(crate) fn open(protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let fd = socket::open(libc::AF_NETLINK, kind, protocol)?;
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        // A kernel without this option sends shorter errors.
        let _ = socket::set_option(fd.as_fd(), libc::SOL_NETLINK, option, &libc::c_int::from(true));
    }
    Ok(fd)
}

/// The receive buffer in the kernel, in bytes; the kernel raises it to its minimum.
const FEW: libc::c_int = 4096;

/// A route socket that receives changes of one link and of its queueing disciplines.
pub(crate) fn listen(index: u32) -> io::Result<OwnedFd> {
    let fd = open(libc::NETLINK_ROUTE)?;
    let _ = socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &FEW);
    only(fd.as_fd(), index)?;
    // SAFETY: zeroes are a valid address.
    let mut address: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_TC) as u32;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads an address of this length, which lives as long as the call.
    socket::done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(fd)
}

/// Makes the kernel drop messages about other links. In messages about links and about queueing disciplines
/// the index has the same offset: four bytes after the header.
fn only(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let op = |code: u32, skip, k| libc::sock_filter { code: code as u16, jt: 0, jf: skip, k };
    let mut code = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 20),
        op(libc::BPF_JMP | libc::BPF_JEQ, 1, index.to_be()), // the load assumes big-endian
        op(libc::BPF_RET, 0, u32::MAX),
        op(libc::BPF_RET, 0, 0),
    ];
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the kernel copies the four instructions, which live as long as the call.
    unsafe { socket::set_addresses(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

pub(crate) fn send(fd: BorrowedFd<'_>, request: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of the slice.
    let sent = unsafe { libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    match usize::try_from(sent) {
        Ok(sent) if sent == request.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives a datagram, if there is one. Returns its length, which may exceed `into`, and whether the kernel
/// sent it. Never waits.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<(usize, bool)> {
    // SAFETY: zeroes are a valid address.
    let mut from: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of_val(&from) as libc::socklen_t;
    let (at, from_at) = (into.as_mut_ptr().cast(), (&raw mut from).cast());
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes into the slice and the address, within their lengths, and into the length.
    let got = unsafe { libc::recvfrom(fd.as_raw_fd(), at, into.len(), flags, from_at, &raw mut len) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    Ok((got, from.nl_pid == 0))
}
