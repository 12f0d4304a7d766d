//! Every system call of this crate. No other file calls the kernel.

pub(crate) mod bpf;
pub(crate) mod event;
