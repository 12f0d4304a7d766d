//! System calls and CPU instructions. No other file of this crate calls the kernel.

pub(crate) mod bpf;
pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod file_lock;
pub(crate) mod locked_memory;
pub(crate) mod prefetch;
pub(crate) mod raised_rights;
pub(crate) mod remedy;

pub(crate) use pagepool_link::sys::{capability, socket};

/// Error numbers that callers distinguish, or have a remedy for.
pub(crate) mod errno {
    pub(crate) use libc::{
        E2BIG, EACCES, EAFNOSUPPORT, EAGAIN, EBADFD, EBUSY, EEXIST, EINTR, EINVAL, EIO, ENETDOWN, ENOBUFS,
        ENODEV, ENOENT, ENOLINK, ENOMEM, ENOPROTOOPT, ENXIO, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, ERANGE,
    };
}
