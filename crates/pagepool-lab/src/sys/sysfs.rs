//! The files of a network namespace's links, without a mount that anybody else sees.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// The root of a sysfs that shows the links of the calling thread's namespace. It is mounted nowhere, and goes with the
/// descriptor. Needs Linux 5.2 and `CAP_SYS_ADMIN`.
pub(crate) fn of_this_namespace() -> io::Result<OwnedFd> {
    // SAFETY: the name is a string that lives as long as the call.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, c"sysfs".as_ptr(), libc::FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let nothing = ptr::null::<c_void>();
    // SAFETY: the command takes neither a key nor a value.
    let made = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), libc::FSCONFIG_CMD_CREATE, nothing, nothing, 0)
    };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes integers, and touches no memory of ours.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), libc::FSMOUNT_CLOEXEC, 0) })
}

/// The descriptor that a call gave, or its error.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel gave this number to the caller just now, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
