//! The generic netlink family `netdev` (Linux 6.3): features of drivers, and page pools of the kernel.

pub(crate) mod family;
pub(crate) mod features;
pub(crate) mod kernel_pool;
pub(crate) mod kernel_pools;
