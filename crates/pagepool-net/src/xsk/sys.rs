//! The system calls of AF_XDP: sockets and their rings, the program that redirects to them, interfaces.

pub(crate) mod bpf;
pub(crate) mod link;
pub(crate) mod socket;
