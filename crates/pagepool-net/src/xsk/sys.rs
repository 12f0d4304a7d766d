//! The system calls of AF_XDP, sockets and their rings; and what the CPU is told of memory.

pub(crate) mod prefetch;
pub(crate) mod ring;
pub(crate) mod socket;
