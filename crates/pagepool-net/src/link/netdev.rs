//! The family `netdev` of generic netlink (Linux 6.3): what drivers say of devices, and the page pools of the
//! kernel.

pub(super) mod family;
pub(crate) mod features;
pub(super) mod kernel_pool;
pub(super) mod kernel_pools;
