//! Sockets over memory of their own: their sizes, the interfaces that they are opened on, and opening them.

mod interface;
pub mod memory_node;
mod queue_progress;
mod setup;
mod socket_sizes;

pub use interface::{Interface, Kernel, pairs_of, with_sockets};
pub use queue_progress::QueueProgress;
pub use setup::{OpenedInterface, PortSide, SetupParams, TrafficSetup, common_mode, locked_bytes};
pub use socket_sizes::{CHUNKS, HEADERS, HEADROOM, SocketNeeds, SocketSizes, fits};
