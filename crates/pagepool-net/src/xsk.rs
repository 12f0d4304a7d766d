//! Real interfaces: AF_XDP sockets over a pool's memory.
//!
//! What   a [`Umem`] is an arena registered with the kernel, and the domain that its pools name. A [`Redirect`] is the XDP
//!        program of an interface. An [`XskDevice`] is one queue of it: a socket with four rings.
//!
//! ```text
//!   pool ── pages ──► table ── fill: address ───────────────►  kernel, driver
//!                     table ◄─ receive: address, length, more? ─
//!   frames ─────────► table ── transmit: address, length, more? ►
//!                     table ◄─ completion: address ─────────────
//! ```
//!
//! | who | may do what |
//! |---|---|
//! | any thread | make a `Umem`; attach a `Redirect`; open devices, over one `Umem` also at the same time, each in the network namespace of its interface; drop frames and buffers of any device |
//! | the thread that polls a device | everything on that device: receive, transmit, complete, wait, statistics, close. It owns the pool that it receives into; frames of any pool over the `Umem` may be sent. No lock is taken |
//! | another thread | has other devices: other queues, other interfaces, over the same `Umem` or another. A device may be sent to it between polls |
//! | two threads | never share a device: its rings have one producer and one consumer. One queue has one device per `Umem` |
//! | another process | has its own `Umem`. A child of `fork` that neither execs nor exits keeps the sockets open |
//!
//! Sharing devices over one `Umem`, each has fill and completion rings of its own (Linux 5.10), so nothing is shared per
//! packet: what one receives another sends without a copy in user space, and the pages go home to the pool they are of.
//!
//! Calls  in copy mode the kernel sends when it is called: after each transmit, and again in `complete` and `wait` for what
//!        it had no room for. It is called only if it says that it waits to be.
//! Close  closes the socket first, then takes back what the tables have: on a fill ring, in the kernel, on any ring, refused.
//!        A queue is free a moment later only (the kernel takes sockets apart behind our back); opening tries again.

mod bpf;
mod device;
mod params;
mod receiver;
mod redirect;
mod ring;
mod sender;
mod stats;
mod sys;
mod umem;

pub use device::XskDevice;
pub use params::{UmemParams, XskMode, XskParams};
pub use redirect::{Attach, Redirect};
pub use stats::XskStats;
pub use umem::Umem;
