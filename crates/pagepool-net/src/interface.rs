//! The interface of a device: what sockets and programs read of it, and frames that the kernel sends out of it.

pub(crate) mod live_frames;
pub(crate) mod lookup;
