//! Sockets of every family, and their options: socket(7), packet(7).

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Opens a socket in this thread's network namespace. It does not survive `exec`.
pub fn open(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes three integers.
    let made = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    // SAFETY: the call just made this descriptor, and nothing else has it.
    unsafe { descriptor(made) }
}

/// Takes the result of a call that makes a descriptor; negative means failure.
///
/// # Safety
/// A call just made the descriptor, and nothing else has it.
#[inline]
pub unsafe fn descriptor(made: libc::c_int) -> io::Result<OwnedFd> {
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// The result of a call that returns 0 for success.
#[inline]
pub fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Values of socket options: integers without padding and without an address.
///
/// # Safety
/// All bytes of a value are initialised, any bytes are a valid value, and the kernel follows none of them.
pub unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: two integers.
unsafe impl Plain for libc::linger {}
// SAFETY: integers, without padding.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: an integer.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: integers of 64 bits.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers of 64 bits.
unsafe impl Plain for libc::xdp_statistics {}

/// Sets an option.
pub fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the value has no address.
    unsafe { set_addresses(fd, level, name, value) }
}

/// Sets an option whose value has addresses.
///
/// # Safety
/// What the kernel reads and writes at these addresses, during the call or later, exists and may be accessed.
pub unsafe fn set_addresses<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads the value, which lives as long as the call.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, len) })
}

/// Reads an option.
pub fn option<T: Plain>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = value.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes; both variables live as long as the call.
    done(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut len) })?;
    // SAFETY: all bytes are initialised, as zeroes or by the kernel, and any bytes are a valid value.
    Ok(unsafe { value.assume_init() })
}

/// The cookie of a socket's network namespace, unique since boot; 0 before Linux 5.14.
pub fn namespace(fd: BorrowedFd<'_>) -> u64 {
    option::<u64>(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE).unwrap_or(0)
}

/// Makes closing the socket, also by a kill, discard the connection and its data at once; otherwise the
/// kernel continues it alone. A socket accepted from a listener inherits the setting.
pub(crate) fn forget_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// A socket that keeps an interface in promiscuous mode while it is open.
pub(crate) fn promiscuous(index: u32) -> io::Result<OwnedFd> {
    let fd = open(libc::AF_PACKET, libc::SOCK_RAW, 0)?; // without a protocol: it receives nothing
    let membership = libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(fd)
}
