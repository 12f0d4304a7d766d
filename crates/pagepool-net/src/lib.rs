//! Packet devices, programs and forwarding over the page pool.

mod counters;
mod device;
mod egress;
mod forward;
mod handoff;
mod program;
mod stack;

pub use device::{Capabilities, Device, DeviceStats, Wake};
pub use egress::{Egress, Path, PathStats};
pub use forward::{BUDGET, ForwardStats, Forwarder};
pub use handoff::{Inlet, Outlet, handoff};
pub use program::{Action, Ingress, PortId, Program};
pub use stack::{NoStack, Stack};
