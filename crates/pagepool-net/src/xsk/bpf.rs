//! The BPF programs of AF_XDP devices, what attaches them, and what is watched while one sends.

mod btf;
pub(super) mod egress_watch;
mod pin;
pub(super) mod program;
pub(super) mod redirect;
pub(super) mod rx_metadata;
mod waiting_sockets;
