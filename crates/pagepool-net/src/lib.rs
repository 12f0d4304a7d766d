//! AF_XDP sockets, and a loop that forwards packets between devices, on the page pools of the crate
//! `pagepool`. No C library, no clang. TAPs, vhost-user, vhost-net and in-memory NICs have the same interface.
//!
//! # A first program
//!
//! This prints the sender of each packet that one queue of an interface receives, and drops the packet:
//!
//! ```no_run
//! use pagepool_net::{Action, Forwarder, XskDevice};
//! use std::sync::atomic::AtomicBool;
//!
//! fn main() -> Result<(), pagepool::Error> {
//!     let (device, pool) = XskDevice::simple("eth0", 0)?; // queue 0, memory, and the XDP program
//!     let mut forwarder = Forwarder::new(|packet, _| {
//!         println!("{:02x?}", &packet.data()[6..12]);
//!         Action::Drop
//!     });
//!     forwarder.add_port(device, pool);
//!     forwarder.run(&AtomicBool::new(false)) // until Ctrl-C, which gives the packets back to the kernel
//! }
//! ```
//!
//! It requires root, or the capabilities that its error names. While it runs, the kernel sees no packet of
//! that queue: no ARP, no ssh. Try it between two network namespaces, or take only some of the packets
//! ([`Redirect::attach_udp_port`]).
//!
//! # Next steps
//!
//! | to | change |
//! |---|---|
//! | send a packet back | [`Action::Tx`] after [`swap_endpoints`], [`swap_macs`] or your own changes |
//! | take only one UDP port | [`Redirect::attach_udp_port`], [`XskDevice::simple_with`] |
//! | take packets that match an expression | [`Redirect::steer`] with a [`Match`] |
//! | forward between interfaces | [`open_devices`], [`Action::Redirect`] |
//! | pass other packets to the kernel | [`KernelStack`], [`Action::Pass`] |
//! | hand packets to other threads, and take answers | [`handoff`], [`Forwarder::add_remote`] |
//! | await packets in tasks: tokio, epoll | [`HandoffRx::arm`], with the loop itself [`Forwarder::arm`] |
//! | write the loop yourself | [`DeviceExt::wait`], [`Device::receive`], [`XskDevice::waker`] |
//! | show pools in `pagepool top`, `doctor` | [`pagepool::publish`], in your own loop [`PublishedDevice`] |
//! | choose memory, rings, zero copy | [`Umem`], [`XskDevice::open`] |
//!
//! The crate's examples `receive`, `udp_echo` and `workers` do some of this: `cargo build -p pagepool-net
//! --examples`, then `sudo target/debug/examples/receive eth1`. In the repository, `examples/tokio-workers`
//! has tasks that await packets. The modules [`xsk`] and [`forward`] explain sockets and the loop.
//!
//! [`swap_endpoints`]: pagepool::XdpBuff::swap_endpoints
//!
//! # Devices
//!
//! A [`Device`] is one receive and one transmit queue of an interface. It takes its buffers from a pool.
//! Devices that reach the same memory exchange packets without a copy. A [`Forwarder`] polls devices, and a
//! [`PacketHandler`] decides about each packet, with the actions of XDP. Here two in-memory NICs exchange
//! packets:
//!
//! ```
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams};
//! use pagepool_net::{Action, Forwarder, MemNicParams, NicDomain, PortId, mem_nic};
//!
//! // What comes in by one port goes out of the other.
//! let mut forwarder = Forwarder::new(|_, at| Action::Redirect(PortId(1 - at.port.0)));
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
//! | receive and send without a NIC | [`mem_nic()`] and its other end [`NicPort`] |
//! | test your own device, or against faults | the crate `pagepool-testing`, with its feature `devices` |
//! | have checksums computed, TCP packets cut, get or set the send time | [`TxMetadata`] |
//! | open any kind of device by name | [`open_device`], [`open_devices`]; [`DRIVERS`] lists the kinds |
//! | decide about packets | a [`PacketHandler`]: drop, pass, send back, redirect |
//! | receive passed packets | a [`Stack`]; the kernel's is [`KernelStack`] |
//! | hand packets to another thread | [`handoff`] |
//! | send memory that a device has not mapped | [`Egress`]: reuse its address, map the area once, or copy |
//! | send pages on a UDP or TCP socket | [`ZeroCopySocket`]: `MSG_ZEROCOPY` and its completions |
//! | count frames that are lost, repeated or changed | [`NumberedFrames`] and a [`Tally`] of what arrived |
//! | create and query links | the crate `pagepool-link`: veths, addresses, offloads, token buckets |
//! | find offloads that change packets | [`pagepool_link::offload_faults`]: VLAN tags, checksums |
//!
//! # Rules
//!
//! * One thread polls a device: the owner of the pool that it receives into. A device may move to another
//!   thread between polls.
//! * The buffers on a device's rings belong to the device. [`Device::close`], or dropping it, returns all of
//!   them, even if the device is gone.
//! * Counters show what happened to each packet: [`DeviceStats`], [`ForwardStats`], [`PathStats`],
//!   [`KernelStats`].
//! * AF_XDP requires `CAP_NET_RAW`. Attaching the XDP program requires `CAP_NET_ADMIN` and `CAP_BPF`. Errors
//!   name the missing capability.
//!
//! # Features
//!
//! * `testing`: for the tests and benchmarks of this repository.

#![cfg_attr(
    all(loom, test),
    expect(dead_code, reason = "tests that need an interface are not built for models")
)]

/// Documents whose examples are tests of this crate.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
}

#[cfg(test)]
extern crate self as pagepool_net; // for what unit tests share with the tests in `tests/`

mod bpf_run;
mod device;
mod drivers;
mod error;
pub mod forward;
mod interface;
mod kernel_stack;
mod mem_nic;
mod numbered;
mod steering;
mod sys;
mod tap;
#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
#[cfg(not(loom))]
#[path = "../tests/veth/mod.rs"]
mod veth;
mod vhost;
mod virtio;
pub mod xsk;
mod zerocopy;

pub use device::{
    Armed, Calls, Device, DeviceDescription, DeviceExt, DeviceInfo, DeviceStats, KernelStats, QueueState,
    RxHash, RxMetadata, SegmentKind, TxChecksum, TxMetadata, TxQueue, TxSegment, VlanTag, Wake, Waker,
};
pub use drivers::open_params::{AfXdpParams, OpenParams, XdpProgram};
pub use drivers::opened_device::{OpenedDevice, SocketInfo};
pub use drivers::{DRIVERS, Driver, DriverMemory, DriverQueues, OtherEnd, open_device, open_devices};
#[doc(inline)]
pub use forward::{
    Action, BUDGET, Egress, ForwardStats, Forwarder, HandoffRx, HandoffTx, Ingress, NoStack, Outlets,
    PacketHandler, PartCycles, PathStats, PortId, PublishedDevice, Stack, handoff, swap_macs,
};
pub use kernel_stack::{KernelStack, KernelStackStats};
pub use mem_nic::device_memory::{DeviceMemory, Fault};
pub use mem_nic::nic_domain::NicDomain;
pub use mem_nic::port_thread::PortThread;
pub use mem_nic::{MemNic, MemNicParams, NicPort, PortStep, mem_nic};
pub use numbered::{Arrival, NumberedFrames, Tally};
pub use steering::Match;
pub use sys::clock::{ticks, ticks_per_second};
#[doc(inline)]
pub use xsk::{
    Attach, BusyPoll, Redirect, RxMetadataReader, TxFeatures, TxMetadataMode, TxMode, TxTimestamp, Umem,
    UmemParams, XskDevice, XskMode, XskParams,
};
pub use zerocopy::{Sent, ZeroCopySocket, ZeroCopyStats};
