//! Packet devices, programs and forwarding over the page pool.

mod zerocopy;

pub use zerocopy::{Sent, ZeroCopySocket, ZeroCopyStats};
mod cable;
mod device;
mod device_memory;
mod fault_nic;
mod mem_nic;
mod nic_domain;
mod port_thread;
mod program;
mod reach;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use cable::Cable;
pub use device::{Capabilities, Device, DeviceStats, Wake};
pub use device_memory::{DeviceMemory, Fault};
pub use fault_nic::{Chance, FaultCounts, FaultNic, FaultParams};
pub use mem_nic::{MemNic, MemNicParams, NicPort, PortStats, PortStep, mem_nic};
pub use nic_domain::NicDomain;
pub use port_thread::PortThread;
pub use program::{Action, Ingress, PortId, Program};
