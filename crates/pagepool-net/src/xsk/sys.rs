//! The system calls of AF_XDP sockets and their rings; prefetch instructions.

pub(crate) mod prefetch;
pub(crate) mod ring;
pub(crate) mod socket;
