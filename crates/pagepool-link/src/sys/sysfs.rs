//! The sysfs files of a network namespace's links, without a mount that other processes see:
//! include/uapi/linux/mount.h, v7.3.

// UNSAFETY: system calls; each says what makes it sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null;

use crate::sys::socket::{descriptor, done};

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// The root of a sysfs with the links of the calling thread's namespace. It is mounted nowhere, and ends with
/// the descriptor. Requires Linux 5.2 and `CAP_SYS_ADMIN`.
pub(crate) fn of_this_namespace() -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the name to its end, which it has.
    let made = unsafe { libc::syscall(libc::SYS_fsopen, c"sysfs".as_ptr(), FSOPEN_CLOEXEC) };
    // SAFETY: the call just made this descriptor, and nothing else has it.
    let context = unsafe { descriptor(made as libc::c_int) }?;
    let (key, value) = (null::<libc::c_char>(), null::<libc::c_void>());
    let (at, command) = (context.as_raw_fd(), FSCONFIG_CMD_CREATE);
    // SAFETY: this command has no key and no value.
    done(unsafe { libc::syscall(libc::SYS_fsconfig, at, command, key, value, 0) } as libc::c_int)?;
    // SAFETY: the call takes three integers.
    let made = unsafe { libc::syscall(libc::SYS_fsmount, at, FSMOUNT_CLOEXEC, 0u32) };
    // SAFETY: the call just made this descriptor, and nothing else has it.
    unsafe { descriptor(made as libc::c_int) }
}

pub(crate) fn setting(root: &OwnedFd, link: &str, name: &str) -> String {
    format!("/proc/self/fd/{}/class/net/{link}/{name}", root.as_raw_fd())
}
