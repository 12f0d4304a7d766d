//! The BPF programs of AF_XDP devices, how they are attached, and what is watched while one sends.

mod btf;
mod chain;
pub(super) mod egress_watch;
#[cfg(any(test, feature = "testing"))]
pub(super) mod loaded_match;
mod pin;
pub(super) mod program;
pub(super) mod redirect;
pub(super) mod rx_metadata;
pub(super) mod steer;
#[cfg(any(test, feature = "testing"))]
pub(super) mod tail_adjuster;
mod waiting_sockets;
