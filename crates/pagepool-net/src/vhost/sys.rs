//! Unix sockets (unix(7)): connecting without waiting, sending descriptors (SCM_RIGHTS), checking whether the
//! peer is connected.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

pub(super) mod vhost_device;

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::sys::socket::{done, open};

use pagepool_link::sys::poll::{entry, poll};

/// The most descriptors of a message.
pub(super) const MAX_FILES: usize = 8;
/// Room for a control message with these, aligned for its header.
const CONTROL_WORDS: usize = 8;

/// Sends all bytes, and the descriptors with the first of them. A closed other end is an error, not a signal.
pub(super) fn send(mut stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let sent = send_first(stream, bytes, files)?;
    stream.write_all(&bytes[sent..])
}

fn send_first(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let numbers: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let len = size_of_val(&numbers[..]);
    // SAFETY: it computes a length from a length.
    let space = unsafe { libc::CMSG_SPACE(len as u32) };
    // SAFETY: as above.
    let total = unsafe { libc::CMSG_LEN(len as u32) };
    let mut control = [0u64; CONTROL_WORDS];
    assert!(
        files.len() <= MAX_FILES && space as usize <= size_of_val(&control),
        "{len} bytes of descriptors"
    );
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a message header of zeros has no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    if !files.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = space as _;
        // SAFETY: a header of zeros has no content. Some C libraries' headers have private fields.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = total as _;
        (header.cmsg_level, header.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        // SAFETY: the control message has room for its header, checked above, and is aligned for it.
        unsafe { control.as_mut_ptr().cast::<libc::cmsghdr>().write(header) };
        let data = size_of::<libc::cmsghdr>();
        // SAFETY: behind the header there is room for the numbers, checked above.
        let to = unsafe { control.as_mut_ptr().cast::<u8>().add(data) };
        // SAFETY: they do not overlap, and `len` bytes are there on both sides.
        unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), to, len) };
    }
    // SAFETY: header, part and control message live until the call returns; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Connects to a socket, without waiting: if too many others wait there, it fails with EAGAIN.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let name = path.as_os_str().as_bytes();
    // SAFETY: an address of zeros has an empty path.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The last byte stays 0.
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    address.sun_path.iter_mut().zip(name).for_each(|(to, &byte)| *to = byte as libc::c_char);
    let socket = open(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads the address, which lives as long as the call.
    done(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(socket.into())
}

/// Whether the other end of a socket is closed.
pub(super) fn is_closed(stream: &UnixStream) -> bool {
    let mut entries = [entry(Some(stream.as_fd()))];
    entries[0].events |= libc::POLLRDHUP;
    poll(&mut entries, Duration::ZERO);
    entries[0].revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0
}
