//! Devices and a forwarding loop over the page pools of the crate `pagepool`: AF_XDP sockets without a C
//! library, and in-memory NICs with the same interface.
//!
//! A [`Device`] is one receive and one transmit queue of an interface. It takes its buffers from a pool, and
//! what it receives and sends are the pool's pages: nothing is copied between devices that reach the same
//! memory.
//!
//! # Example
//!
//! A [`Forwarder`] polls devices and does what a [`PacketHandler`] says of each packet, in the words of XDP.
//! Here two in-memory NICs exchange what arrives; `cargo run -p pagepool-net --example receive_af_xdp` opens
//! an AF_XDP socket.
//!
//! ```
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
//! use pagepool_net::{Action, Forwarder, Ingress, MemNicParams, NicDomain, PortId, mem_nic};
//!
//! // A closure is a handler: what comes in by one port goes out of the other.
//! let cross = |_: &mut XdpBuff, at: Ingress| Action::Redirect(PortId(1 - at.port.0));
//! let mut forwarder = Forwarder::new(cross);
//! let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
//! let mut wires = Vec::new();
//! for name in ["mem0", "mem1"] {
//!     let domain = NicDomain::new(name);
//!     let params = PoolParams { name: name.into(), domains: vec![domain.clone()], ..Default::default() };
//!     let (nic, wire) = mem_nic(MemNicParams::default(), domain)?;
//!     forwarder.add_port(nic, Pool::new(params, arena.clone())?.bind());
//!     wires.push(wire); // the hardware's end
//! }
//! forwarder.poll(); // gives the devices their first buffers
//! assert!(wires[0].deliver(b"sixty bytes from the first wire are to leave by the second.."));
//! forwarder.poll();
//! assert!(wires[1].take(|packet| assert_eq!(packet.len(), 60)));
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! # The parts
//!
//! | to | use |
//! |---|---|
//! | receive and send over a NIC | [`Umem`], [`Redirect`] (the XDP program), [`XskDevice`] (one queue) |
//! | take some packets and leave the rest to the kernel | [`Match`], [`Redirect::steer`] |
//! | do the same without a NIC | [`mem_nic()`] and its other end, [`NicPort`]; [`FaultNic`] to see it fail |
//! | have checksums computed, know when packets leave, say when | [`TxMetadata`] |
//! | measure AF_XDP without a card and a kernel | [`xsk_in_memory`] and its other end, [`XskKernelSide`] |
//! | open either by its name | [`open_device`], [`open_devices`]: `af_xdp:eth0`, `memory:` |
//! | decide about packets | a [`PacketHandler`]: drop, pass, send back, redirect |
//! | take what is passed | a [`Stack`] |
//! | redirect to another thread's port | [`handoff`] |
//! | send memory that a device does not know | [`Egress`]: reuse its address, map the area once, or copy |
//! | send pages on a UDP or TCP socket | [`ZeroCopySocket`]: `MSG_ZEROCOPY` and its completions |
//! | create and query links | [`link`]: veths, addresses, offloads, token buckets, what not to touch |
//! | see packets as a wire has them | [`link::offload_faults`]: offloads that take VLAN tags away |
//!
//! # Rules
//!
//! * One thread polls a device: the owner of the pool that it receives into. Devices may move between polls.
//! * The buffers on a device's rings belong to the device. [`Device::close`], or dropping it, returns every
//!   one of them, also if the device is gone.
//! * Counters say what became of each packet: [`DeviceStats`], [`ForwardStats`], [`PathStats`],
//!   [`KernelStats`].
//! * AF_XDP requires `CAP_NET_RAW`, and `CAP_NET_ADMIN` and `CAP_BPF` to attach the XDP program. Errors name
//!   the capability that is missing.
//!
//! # Features
//!
//! * `testing`: the conformance suite for devices, and memory that checks every access.

#[cfg(test)]
extern crate self as pagepool_net; // for what unit tests share with the tests beside the crate

mod device;
mod drivers;
mod error;
mod forward;
pub mod link;
mod mem_nic;
mod steering;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
#[path = "../tests/veth/mod.rs"]
mod veth;
mod xsk;
mod zerocopy;

pub use device::fault_nic::{Chance, FaultCounts, FaultNic, FaultParams};
pub use device::{
    Armed, Calls, Device, DeviceExt, DeviceInfo, DeviceStats, FarEnd, KernelStats, QueueState, TxQueue, Wake,
    Waker,
};
pub use drivers::open_params::{AfXdpParams, MemoryParams, OpenParams, XdpProgram};
pub use drivers::opened_device::{OpenedDevice, SocketInfo};
pub use drivers::{DRIVERS, Driver, open_device, open_devices};
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
pub use steering::Match;
pub use sys::clock::{ticks, ticks_per_second};
pub use xsk::{
    Attach, BusyPoll, Redirect, RxHash, RxMetadata, RxMetadataReader, TxChecksum, TxFeatures, TxMetadata,
    TxMetadataMode, TxMode, TxTimestamp, Umem, UmemParams, VlanTag, XskDevice, XskKernelSide, XskMode,
    XskParams, umem_in_memory, xsk_in_memory,
};
pub use zerocopy::{Sent, ZeroCopySocket, ZeroCopyStats};
