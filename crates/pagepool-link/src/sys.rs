//! System calls, and the names and numbers of the kernel's interface. No other file of this crate calls the
//! kernel.

pub mod capability;
pub(crate) mod clock;
pub(crate) mod ethtool;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub mod poll;
pub mod remedy;
pub mod socket;
pub(crate) mod sysfs;
pub(crate) mod tap;
pub(crate) mod uapi;

/// Error numbers that callers distinguish, or have a remedy for.
pub(crate) mod errno {
    pub(crate) use libc::{
        E2BIG, EACCES, EADDRNOTAVAIL, EAFNOSUPPORT, EBUSY, EEXIST, EHOSTUNREACH, EINVAL, ENETUNREACH,
        ENOBUFS, ENODEV, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENXIO, EOPNOTSUPP, EPERM,
    };
}
