//! The BPF programs of AF_XDP devices, and what attaches them.

pub(super) mod program;
pub(super) mod redirect;
mod waiting_sockets;
