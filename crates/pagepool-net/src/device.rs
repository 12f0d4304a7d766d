//! The trait [`Device`] and what devices share: the transmit queue, counters, tables, waking.

pub(crate) mod counters;
#[expect(clippy::module_inception, reason = "the trait of the folder has its name")]
pub(crate) mod device;
pub(crate) mod doorbell;
pub(crate) mod mapping_cache;
pub(crate) mod rx_chain;
pub(crate) mod rx_metadata;
mod stats;
pub(crate) mod tx_metadata;
mod tx_queue;
pub(crate) mod tx_slots;
mod wait;
pub(crate) mod waker;

pub(crate) use device::boxed;
pub use device::{Armed, Device, DeviceDescription, DeviceInfo, QueueState};
pub use rx_metadata::{RxHash, RxMetadata, VlanTag};
pub use stats::{Calls, DeviceStats, KernelStats};
pub use tx_metadata::{SegmentKind, TxChecksum, TxMetadata, TxSegment};
pub use tx_queue::TxQueue;
pub use wait::{DeviceExt, Wake};
pub use waker::Waker;
