//! vhost: back ends of virtio queues outside this process.
//!
//! What   `vhost_user`: a switch in another process, over a Unix socket: OVS-DPDK, VPP, dpdk-testpmd.
//! Memory [`VhostDomain`](domain::VhostDomain): the arena's file, at addresses of our choice. The back end maps
//!        all of it. It can read and write every packet in that arena while it lives: note 0016.

pub(crate) mod domain;
#[cfg(any(test, feature = "testing"))]
#[cfg(not(all(test, loom)))]
pub(crate) mod in_memory;
mod message;
mod sys;
pub(crate) mod vhost_user;
