//! Sockets over memory of their own: their sizes, the interfaces that they are opened on, and opening them.

pub mod interface;
pub mod memory_node;
pub mod queue_progress;
pub mod setup;
pub mod socket_sizes;
