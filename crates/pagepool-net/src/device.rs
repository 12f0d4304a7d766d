//! What a device is, and what devices share: the seam, counters, tables, waking.

pub(crate) mod counters;
pub(crate) mod doorbell;
pub(crate) mod fault_nic;
pub(crate) mod mapping_cache;
mod seam;

pub(crate) use seam::sleep_on;
pub use seam::{Armed, Calls, Capabilities, Device, DeviceStats, Wake};
