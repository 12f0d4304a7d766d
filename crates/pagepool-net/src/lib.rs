//! Packet devices, programs and forwarding over the page pool.

#[cfg(test)]
extern crate self as pagepool_net; // for what unit tests share with the tests beside the crate

mod cable;
mod clock;
mod counters;
mod device;
mod device_memory;
mod doorbell;
mod egress;
mod fault_nic;
mod forward;
mod handler;
mod handoff;
mod mem_nic;
pub mod netns;
mod nic_domain;
mod port_thread;
mod reach;
mod stack;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
#[path = "../tests/veth/mod.rs"]
mod veth;
mod xsk;
mod zerocopy;

pub use cable::Cable;
pub use clock::{ticks, ticks_per_second};
pub use device::{Armed, Calls, Capabilities, Device, DeviceStats, Wake};
pub use device_memory::{DeviceMemory, Fault};
pub use egress::{Egress, Path, PathStats};
pub use fault_nic::{Chance, FaultCounts, FaultNic, FaultParams};
pub use forward::{BUDGET, ForwardStats, Forwarder, PartCycles};
pub use handler::{Action, Ingress, PacketHandler, PortId, swap_macs};
pub use handoff::{HandoffRx, HandoffTx, handoff};
pub use mem_nic::{MemNic, MemNicParams, NicPort, PortStats, PortStep, mem_nic};
pub use nic_domain::NicDomain;
pub use port_thread::PortThread;
pub use stack::{NoStack, Stack};
pub use xsk::{
    Attach, BusyPoll, Redirect, TxMode, Umem, UmemParams, XskDevice, XskMode, XskParams, XskStats,
};
pub use zerocopy::{Sent, ZeroCopySocket, ZeroCopyStats};
