//! Frames as they are on a link: linux/Documentation/networking/packet_mmap.rst, packet(7).

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socket_with};

/// Frames that one call moves at most.
pub(crate) const BATCH: usize = 64;
/// Bytes of memory that received frames may wait in.
const RECEIVE_BYTES: libc::c_int = 32 << 20;

/// What a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    Nothing,
    /// What comes over the wire, and not what this machine sends.
    Wire,
    Both,
}

/// A socket for all frames of one link, in the network namespace of the calling thread.
pub(crate) fn open(index: u32, hears: Hears) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let ignores = libc::c_int::from(hears != Hears::Both);
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, ignores)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    // Only those who may administer the network get so much; with less, bursts are lost sooner.
    let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BYTES);
    bind(&socket, index, if hears == Hears::Nothing { 0 } else { libc::ETH_P_ALL as u16 })?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: zeroes are an address.
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

/// Whether an error says that the driver has no room for a frame.
pub(crate) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Sends one frame. Never waits.
pub(crate) fn send(fd: BorrowedFd<'_>, frame: &[u8]) -> io::Result<()> {
    net::send(fd, frame, SendFlags::empty())?;
    Ok(())
}

/// Receives one frame: its length, which may be more than there was room for. Never waits.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let (_, len) = net::recv(fd, into, RecvFlags::TRUNC)?;
    Ok(len)
}

/// Sends frames that stand one after the other, all of the same length, at most [`BATCH`]; gives how many
/// went. Never waits.
pub(crate) fn send_many(fd: BorrowedFd<'_>, frames: &[u8], len: usize) -> io::Result<usize> {
    let mut slices = NO_SLICES;
    let frames = frames.chunks_exact(len).map(|frame| frame.as_ptr().cast_mut());
    let (mut messages, count) = messages(frames, len, &mut slices);
    // SAFETY: the kernel reads `count` messages, each of one slice of `frames`, and writes their lengths; all
    // of that lives as long as the call.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives frames into rooms of the same length that stand one after the other, at most [`BATCH`]; the
/// lengths are of the frames, and may be more than there was room for. Gives how many came. Never waits.
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
    // SAFETY: the kernel writes into `count` messages and into the one slice of `rooms` that each has, at
    // most as many bytes as that has; no two slices overlap, and all of that lives as long as the call.
    let got = unsafe { libc::recvmmsg(fd, at, count, flags as _, std::ptr::null_mut()) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    for (length, message) in lengths.iter_mut().zip(&messages[..got]) {
        *length = message.msg_len as usize;
    }
    Ok(got)
}

/// The slices of a batch.
type Slices = [libc::iovec; BATCH];

const NO_SLICES: Slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];

/// A message of one slice for each frame, all of the same length, and how many there are. The messages point
/// to the slices.
fn messages(
    frames: impl Iterator<Item = *mut u8>,
    len: usize,
    slices: &mut Slices,
) -> ([libc::mmsghdr; BATCH], u32) {
    // SAFETY: null pointers and lengths of 0 are a message.
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
