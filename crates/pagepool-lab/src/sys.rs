//! Every system call of the crate.

pub(crate) mod namespace;
pub(crate) mod packet;

pub(crate) mod sysfs;
pub(crate) mod tcp;

/// The errno of a link that has no room for a frame.
pub(crate) use libc::ENOBUFS;
