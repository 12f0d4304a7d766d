//! The BPF programs of AF_XDP devices, and what attaches them.

mod btf;
pub(super) mod program;
pub(super) mod redirect;
pub(super) mod rx_metadata;
mod waiting_sockets;
