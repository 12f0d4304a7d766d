//! vhost: the back ends of virtio queues.
//!
//! What   `vhost_user`: a switch in another process, over a Unix socket: OVS-DPDK, VPP, dpdk-testpmd.
//!        `vhost_net`: the kernel, with a TAP behind it. `in_memory`: this process, for tests.
//! Memory [`VhostDomain`](domain::VhostDomain): the arena, at addresses of our choice. A process maps all of its
//!        file. It can read and write every packet in that arena while it lives: note 0016. The kernel finds
//!        the arena in this process.

pub(crate) mod domain;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod in_memory;
mod message;
mod sys;
pub(crate) mod vhost_net;
pub(crate) mod vhost_user;
