//! Packet devices, programs and forwarding over the page pool.

mod device;
mod program;

pub use device::{Capabilities, Device, DeviceStats, Wake};
pub use program::{Action, Ingress, PortId, Program};
