//! Packet devices, programs and forwarding over the page pool.

mod counters;
mod device;
mod egress;
mod program;

pub use device::{Capabilities, Device, DeviceStats, Wake};
pub use egress::{Egress, Path, PathStats};
pub use program::{Action, Ingress, PortId, Program};
