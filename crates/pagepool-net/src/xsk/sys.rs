//! The system calls of AF_XDP: sockets and their rings, interfaces.

pub(crate) mod link;
pub(crate) mod socket;
