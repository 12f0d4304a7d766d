//! The files of a network namespace's links, without a mount that anybody else sees.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The root of a sysfs that shows the links of the calling thread's namespace. It is mounted nowhere, and
/// goes with the descriptor. Requires Linux 5.2 and `CAP_SYS_ADMIN`.
pub(crate) fn of_this_namespace() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The path of a link's setting, below the root of a sysfs.
pub(crate) fn setting(root: &OwnedFd, link: &str, name: &str) -> String {
    format!("/proc/self/fd/{}/class/net/{link}/{name}", root.as_raw_fd())
}
