//! The trait [`Device`] and what devices share: the transmit queue, counters, tables, waking.

pub(crate) mod counters;
pub(crate) mod doorbell;
mod far_end;
pub(crate) mod fault_nic;
pub(crate) mod mapping_cache;
pub(crate) mod rx_chain;
pub(crate) mod seam;
mod stats;
mod tx_queue;
pub(crate) mod tx_slots;
mod wait;
pub(crate) mod waker;

pub use far_end::FarEnd;
pub(crate) use seam::boxed;
pub use seam::{Armed, Device, DeviceDescription, DeviceInfo, QueueState};
pub use stats::{Calls, DeviceStats, KernelStats};
pub use tx_queue::TxQueue;
pub use wait::{DeviceExt, Wake};
pub use waker::Waker;
