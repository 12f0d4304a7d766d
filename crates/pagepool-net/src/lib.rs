//! Packet devices, programs and forwarding over the page pool.

mod device;
mod device_memory;
mod nic_domain;
mod program;

pub use device::{Capabilities, Device, DeviceStats, Wake};
pub use device_memory::{DeviceMemory, Fault};
pub use nic_domain::NicDomain;
pub use program::{Action, Ingress, PortId, Program};
