//! The system calls of both clients, and the errors that they know.

pub(crate) mod ethtool;
pub(crate) mod netlink;

/// Numbers of errors that a remedy is known for.
pub(crate) use libc::{
    EACCES, EADDRNOTAVAIL, EBUSY, EEXIST, EINVAL, EMFILE, ENFILE, ENOBUFS, ENODEV, ENOMEM, ENOSPC,
    EOPNOTSUPP, EPERM,
};

/// Whether this says that there is no way to an address.
pub(crate) fn is_unreachable(errno: i32) -> bool {
    matches!(errno, libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EAFNOSUPPORT)
}
