//! What `link` asks of the kernel: its system calls, and the names and numbers of its interface.

pub(crate) mod ethtool;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub(crate) mod packet;
pub(crate) mod uapi;
