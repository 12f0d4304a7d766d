//! The system calls of `link`, and the names and numbers of the kernel's interface.

pub(crate) mod ethtool;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub(crate) mod packet;
pub(crate) mod uapi;
