//! The sysfs files of a network namespace's links, without a mount that other processes see.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The root of a sysfs with the links of the calling thread's namespace. It is mounted nowhere, and ends with
/// the descriptor. Requires Linux 5.2 and `CAP_SYS_ADMIN`.
pub(crate) fn of_this_namespace() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

pub(crate) fn setting(root: &OwnedFd, link: &str, name: &str) -> String {
    format!("/proc/self/fd/{}/class/net/{link}/{name}", root.as_raw_fd())
}
