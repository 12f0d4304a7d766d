//! System calls and CPU instructions. No other file of this crate calls the kernel.

pub(crate) mod bpf;
pub(crate) mod capability;
pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod socket;
