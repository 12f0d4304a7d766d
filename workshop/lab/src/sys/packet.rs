//! Raw frames of a link: linux/Documentation/networking/packet_mmap.rst, packet(7).

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socket_with};

pub(crate) const BATCH: usize = 64;
/// For received frames that wait.
const RECEIVE_BYTES: libc::c_int = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    Nothing,
    /// Not what this machine sends.
    Wire,
    Both,
}

/// A socket for all frames of one link of the calling thread's namespace.
pub(crate) fn open(index: u32, hears: Hears) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let ignores = libc::c_int::from(hears != Hears::Both);
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, ignores)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    // Requires CAP_NET_ADMIN; with less memory, bursts are lost sooner.
    let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BYTES);
    bind(&socket, index, if hears == Hears::Nothing { 0 } else { libc::ETH_P_ALL as u16 })?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeroes are a valid address.
    let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index.cast_signed();
    let (at, len) = ((&raw const address).cast(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the kernel reads the address, which lives as long as the call.
    let done = unsafe { libc::bind(socket.as_raw_fd(), at, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (at, len) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the option is an int, which lives as long as the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the driver had no room for a frame.
pub(crate) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Never blocks.
pub(crate) fn send(fd: BorrowedFd<'_>, frame: &[u8]) -> io::Result<()> {
    net::send(fd, frame, SendFlags::empty())?;
    Ok(())
}

/// Returns the frame's length, larger than `into` if it was cut. Never blocks.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let (_, len) = net::recv(fd, into, RecvFlags::TRUNC)?;
    Ok(len)
}

/// Sends consecutive frames of equal length, at most [`BATCH`]. Returns how many. Never blocks.
pub(crate) fn send_many(fd: BorrowedFd<'_>, frames: &[u8], len: usize) -> io::Result<usize> {
    let mut slices = NO_SLICES;
    let frames = frames.chunks_exact(len).map(|frame| frame.as_ptr().cast_mut());
    let (mut messages, count) = messages(frames, len, &mut slices);
    // SAFETY: the kernel reads `count` messages, each with one slice of `frames`, and writes their lengths;
    // all of that lives as long as the call.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives at most [`BATCH`] frames into consecutive rooms of equal length, and their `lengths`, larger than
/// the room for frames that were cut. Returns how many arrived. Never blocks.
pub(crate) fn receive_many(
    fd: BorrowedFd<'_>,
    rooms: &mut [u8],
    room: usize,
    lengths: &mut [usize; BATCH],
) -> io::Result<usize> {
    let mut slices = NO_SLICES;
    let rooms = rooms.chunks_exact_mut(room).map(<[u8]>::as_mut_ptr);
    let (mut messages, count) = messages(rooms, room, &mut slices);
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    let (fd, at) = (fd.as_raw_fd(), messages.as_mut_ptr());
    // SAFETY: the kernel writes into `count` messages and into the one slice of `rooms` of each, at most as
    // many bytes as the slice has; no two slices overlap, and all of that lives as long as the call.
    let got = unsafe { libc::recvmmsg(fd, at, count, flags as _, std::ptr::null_mut()) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    for (length, message) in lengths.iter_mut().zip(&messages[..got]) {
        *length = message.msg_len as usize;
    }
    Ok(got)
}

type Slices = [libc::iovec; BATCH];

const NO_SLICES: Slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];

/// A message with one slice for each frame, all of equal length, and their number. The messages point to the
/// slices.
fn messages(
    frames: impl Iterator<Item = *mut u8>,
    len: usize,
    slices: &mut Slices,
) -> ([libc::mmsghdr; BATCH], u32) {
    // SAFETY: a message of null pointers and zero lengths is valid.
    let empty: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    let (mut messages, mut count) = ([empty; BATCH], 0);
    for ((frame, slice), message) in frames.zip(slices).zip(&mut messages) {
        *slice = libc::iovec { iov_base: frame.cast(), iov_len: len };
        message.msg_hdr.msg_iov = slice;
        message.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    (messages, count)
}
