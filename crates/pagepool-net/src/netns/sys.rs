//! The system calls of namespaces, links and the ends of a topology.

pub(crate) mod ethtool;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub(crate) mod packet;
pub(crate) mod sysfs;
pub(crate) mod tcp;

/// Numbers of errors that a remedy is known for.
pub(crate) use libc::{
    EACCES, EADDRNOTAVAIL, EBUSY, EEXIST, EINVAL, EMFILE, ENFILE, ENOBUFS, ENODEV, ENOMEM, ENOSPC,
    EOPNOTSUPP, EPERM,
};

/// Whether this says that there is no way to an address.
pub(crate) fn is_unreachable(errno: i32) -> bool {
    matches!(errno, libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EAFNOSUPPORT)
}
