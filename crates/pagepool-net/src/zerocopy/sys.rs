//! The system calls of zero-copy sends: linux/Documentation/networking/msg_zerocopy.rst.

// UNSAFETY: system calls, and control messages that are read by address.
#![expect(unsafe_code)]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::socket::{option, set_option};

/// Not in `libc` 0.2.191, which ends at `SO_EE_ORIGIN_TXSTATUS` (include/uapi/linux/errqueue.h, v7.3).
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// These sends, from first to last, are complete.
    Completed {
        /// The kernel's number of the first, which wraps.
        first: u32,
        /// The number of the last.
        last: u32,
        /// Whether the kernel copied the bytes after all.
        copied: bool,
    },
    /// Any other note.
    Other,
}

pub(crate) fn allow_zero_copy(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &libc::c_int::from(true))
}

/// Whether the socket sends datagrams, one per call, and is not a stream.
pub(crate) fn is_datagram(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(option::<libc::c_int>(socket, libc::SOL_SOCKET, libc::SO_TYPE)? == libc::SOCK_DGRAM)
}

/// Whether network errors are reported in the error queue and by sends (`IP_RECVERR`, `IPV6_RECVERR`).
pub(crate) fn queues_errors(socket: BorrowedFd<'_>) -> bool {
    let on = |level, name| option::<libc::c_int>(socket, level, name).is_ok_and(|value| value != 0);
    on(libc::IPPROTO_IP, libc::IP_RECVERR) || on(libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
}

/// Sends to the socket's peer, without SIGPIPE if the peer is gone.
pub(crate) fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], zero_copy: bool) -> io::Result<usize> {
    let mut message = empty_message();
    // An IoSlice has the layout of an iovec, and is only read.
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    let flags = libc::MSG_NOSIGNAL | if zero_copy { libc::MSG_ZEROCOPY } else { 0 };
    // SAFETY: the slices live as long as the call. With MSG_ZEROCOPY the kernel reads the pages longer, and
    // keeps them pinned: it reads no freed memory, and a write there only changes what is sent.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Room for an extended error with its sender's address, and for other control messages that the socket
/// enabled.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// The next note of the error queue, if there is one. Never waits.
pub(crate) fn next_note(socket: BorrowedFd<'_>) -> Option<Note> {
    let mut control = Control([0; 256]);
    let mut message = empty_message();
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: `control` is writable for as many bytes as the message says, and lives as long as the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    (got >= 0).then(|| completion_in(&message).unwrap_or(Note::Other))
}

fn completion_in(message: &libc::msghdr) -> Option<Note> {
    // SAFETY: the kernel filled the control bytes that the message points to, and they are alive.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: a header that is not null lies whole within the control bytes, aligned.
        let header = unsafe { &*at };
        if is_extended_error(header) {
            // SAFETY: the data follows the header.
            let data = unsafe { libc::CMSG_DATA(at) };
            // SAFETY: the checked length covers an extended error, for which any bytes are valid.
            let error = unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
            return completion(&error);
        }
        // SAFETY: the header belongs to this message, whose control bytes are alive and end where it says.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    None
}

fn is_extended_error(header: &libc::cmsghdr) -> bool {
    let v4 = (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IP, libc::IP_RECVERR);
    let v6 = (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
    // SAFETY: arithmetic.
    let least = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32) };
    (v4 || v6) && header.cmsg_len >= least as _
}

fn completion(error: &libc::sock_extended_err) -> Option<Note> {
    (error.ee_errno == 0 && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY).then_some(Note::Completed {
        first: error.ee_info,
        last: error.ee_data,
        copied: error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
    })
}

fn empty_message() -> libc::msghdr {
    // SAFETY: null pointers and lengths of 0 are a valid message.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
