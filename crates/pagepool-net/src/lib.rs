//! Packet devices, programs and forwarding over the page pool.

#[cfg(test)]
extern crate self as pagepool_net; // for what unit tests share with the tests beside the crate

mod device;
mod error;
mod forward;
pub mod link;
mod mem_nic;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
#[path = "../tests/veth/mod.rs"]
mod veth;
mod xsk;
mod zerocopy;

pub use device::fault_nic::{Chance, FaultCounts, FaultNic, FaultParams};
pub use device::{Armed, Calls, Capabilities, Device, DeviceStats, Wake};
pub use forward::egress::{Egress, Path, PathStats};
pub use forward::handler::{Action, Ingress, PacketHandler, PortId, swap_macs};
pub use forward::handoff::{HandoffRx, HandoffTx, handoff};
pub use forward::stack::{NoStack, Stack};
pub use forward::{BUDGET, ForwardStats, Forwarder, PartCycles};
pub use mem_nic::cable::Cable;
pub use mem_nic::device_memory::{DeviceMemory, Fault};
pub use mem_nic::nic_domain::NicDomain;
pub use mem_nic::port_thread::PortThread;
pub use mem_nic::{MemNic, MemNicParams, NicPort, PortStats, PortStep, mem_nic};
pub use sys::clock::{ticks, ticks_per_second};
pub use xsk::{
    Attach, BusyPoll, Redirect, TxMode, Umem, UmemParams, XskDevice, XskMode, XskParams, XskStats,
};
pub use zerocopy::{Sent, ZeroCopySocket, ZeroCopyStats};
