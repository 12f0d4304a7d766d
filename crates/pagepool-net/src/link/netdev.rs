//! The generic netlink family `netdev` (Linux 6.3): features of drivers, and page pools of the kernel.

pub(super) mod family;
pub(crate) mod features;
pub(super) mod kernel_pool;
pub(super) mod kernel_pools;
