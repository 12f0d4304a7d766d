//! What `link` asks of the kernel: its system calls, and the names and numbers of its interface.

pub(crate) mod ethtool;
pub(crate) mod netlink;
pub(crate) mod uapi;

/// Errors that a remedy is known for.
pub(crate) use libc::{
    EACCES, EADDRNOTAVAIL, EBUSY, EEXIST, EINVAL, EMFILE, ENFILE, ENOBUFS, ENODEV, ENOMEM, ENOSPC,
    EOPNOTSUPP, EPERM,
};

/// Whether this says that there is no route to an address.
pub(crate) fn is_unreachable(errno: i32) -> bool {
    matches!(errno, libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EAFNOSUPPORT)
}
