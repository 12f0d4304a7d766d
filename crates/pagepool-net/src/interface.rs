//! The interface of a device: what sockets and programs read of it.

pub(crate) mod drops;
pub(crate) mod lookup;
