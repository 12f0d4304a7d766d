//! All system calls of the crate: through `rustix` if it has them, else through `libc`.

pub(crate) mod linger;
pub(crate) mod namespace;
pub(crate) mod packet;
pub(crate) mod poll;
pub(crate) mod sysfs;
pub(crate) mod tap;
