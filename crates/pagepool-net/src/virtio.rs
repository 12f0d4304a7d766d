//! virtio-net: a driver of our own, over split virtqueues (Virtual I/O Device specification, version 1.2).
//!
//! What   [`VirtioNet`](device::VirtioNet) is a pair of queues: a [`Device`](crate::Device). Behind its rings
//!        is a [`BackEnd`](back_end::BackEnd): a switch in another process, the kernel, or this process, for
//!        tests (`vhost/`). A [`Port`](port::Port) is what the pairs of one back end share.
//! Memory the rings lie in a file of their own, sealed, so a back end cannot cut it. The packets' memory is
//!        an arena, shared with the back end as a whole.
//! Trust  the back end can read and write all memory that it shares, at any time, while it lives. What it
//!        writes into the rings is checked: an invalid entry is counted, an impossible index ends the
//!        connection. No buffer gets two owners, and no code follows an address that the back end wrote.
//! End    of a device or of a connection: a back end that still lives is asked to stop. If it stops, or has
//!        exited or closed the connection, its buffers return. If it does not answer, they are leaked
//!        (`kept`). A faulty process keeps its mapping, and can still write to all of the arena.

pub(crate) mod back_end;
pub(crate) mod device;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod device_ring;
pub(crate) mod layout;
pub(crate) mod net_header;
pub(crate) mod params;
pub(crate) mod port;
mod receiver;
pub(crate) mod ring;
mod sender;
pub(crate) mod sys;
