//! The system calls of AF_XDP sockets, and their rings.

pub(crate) mod ring;
pub(crate) mod socket;
