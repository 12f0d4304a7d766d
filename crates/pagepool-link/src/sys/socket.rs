//! Sockets of every family, and their options.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// Sets an option of integers.
pub fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads the value, which lives as long as the call.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, len) })
}

/// Reads an option of integers without padding, for which all bytes are valid.
pub fn option<T: Copy>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = value.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes; both variables live as long as the call.
    done(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut len) })?;
    // SAFETY: all bytes are initialised, as zeroes or by the kernel, and any bytes are a valid value.
    Ok(unsafe { value.assume_init() })
}
