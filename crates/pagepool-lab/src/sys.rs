//! Every system call of the crate: `rustix` makes those that it has, `libc` the others.

pub(crate) mod linger;
pub(crate) mod namespace;
pub(crate) mod packet;
pub(crate) mod poll;
pub(crate) mod sysfs;
pub(crate) mod tap;
