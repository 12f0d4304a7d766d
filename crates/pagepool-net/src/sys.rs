//! System calls and CPU instructions. No other file of this crate calls the kernel.

pub(crate) mod bpf;
pub(crate) mod capability;
pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod file_lock;
pub(crate) mod locked_memory;
pub(crate) mod raised_rights;
pub(crate) mod remedy;
pub(crate) mod socket;

/// Error numbers that callers distinguish, or have a remedy for.
pub(crate) mod errno {
    pub(crate) use libc::{
        E2BIG, EACCES, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBUSY, EEXIST, EHOSTUNREACH, EINTR, EINVAL,
        ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENOENT, ENOLINK, ENOMEM, ENOPROTOOPT, ENOSPC, ENOSYS, ENXIO,
        EOPNOTSUPP, EPERM, EPROTONOSUPPORT, ERANGE,
    };
}
