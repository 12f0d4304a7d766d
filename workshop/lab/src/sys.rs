//! All system calls of the crate: through `rustix` if it has them, else through `libc`.

pub(crate) mod bpf;
pub(crate) mod netlink;
pub(crate) mod packet;
pub(crate) mod shared_memory;
