//! What the kernel and the CPU are asked for. No other file of this crate calls the kernel.

pub(crate) mod bpf;
pub(crate) mod capability;
pub(crate) mod clock;
pub(crate) mod event;
