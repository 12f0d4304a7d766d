//! Real interfaces: AF_XDP sockets over a pool's memory.
//!
//! [`XskDevice::simple`] opens a queue with all that it requires. To share or choose the parts:
//!
//! ```no_run
//! // It needs root and an interface.
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams};
//! use pagepool_net::{Attach, Redirect, Umem, UmemParams, XskDevice, XskParams};
//!
//! let arena = Arena::new(ArenaParams { max_bytes: 64 << 20, commit_all: true, ..Default::default() })?;
//! let umem = Umem::new(UmemParams::default(), &arena)?; // pins it
//! let params = PoolParams { headroom: 256, wakeup: true, ..Default::default() };
//! let pool = Pool::new(PoolParams { domains: vec![umem.clone()], ..params }, arena)?.bind();
//! let redirect = Some(Redirect::attach("eth0", Attach::Auto, false)?);
//! let params = XskParams { interface: "eth0".into(), redirect, ..Default::default() };
//! let device = XskDevice::open(params, &umem, &pool)?;
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! What   a [`Umem`] is an arena registered with the kernel, and the domain of its pools. A [`Redirect`] is
//!        the XDP program of an interface. An [`XskDevice`] is one queue of it: a socket with four rings.
//!
//! ```text
//!   pool ── pages ──► table ── fill: address ───────────────►  kernel, driver
//!                     table ◄─ receive: address, length, more? ─
//!   frames ─────────► table ── transmit: address, length, more? ►
//!                     table ◄─ completion: address ─────────────
//! ```
//!
//! Who    the table at [`XskDevice`] says which thread may do what.
//! Share  devices over one `Umem` have their own fill and completion rings (Linux 5.10), so they share
//!        nothing per packet. One sends what another received without a copy; each page returns to its own
//!        pool.
//! Calls  in copy mode the kernel sends only when called: after each transmit, and again in `complete` and
//!        `wait`. It is called only if it requests a wakeup. On a veth a BPF program sends instead, many
//!        packets per call, from rings of our own: see `bpf_batch`.
//! Close  unmaps the rings and closes the socket, which the kernel keeps while they are mapped. Then it takes
//!        back every page in the tables. The kernel frees the queue a moment later; opening retries.

mod bpf;
mod bpf_batch;
mod check_pool;
pub(crate) mod descriptor;
mod device;
mod grace_period;
mod layout;
#[cfg(any(test, feature = "testing"))]
mod memory_kernel;
mod params;
mod probe;
mod queue;
mod ready_made;
mod receiver;
mod sender;
mod stats;
mod sys;
mod tx_metadata;
mod umem;

#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub use bpf::loaded_match::LoadedMatch;
pub use bpf::redirect::{Attach, Redirect};
pub use bpf::rx_metadata::RxMetadataReader;
#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub use bpf::tail_adjuster::TailAdjuster;
pub(crate) use device::UnboundSocket;
pub use device::XskDevice;
#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub use memory_kernel::{XskKernelSide, umem_in_memory, xsk_in_memory};
pub(crate) use params::XDP_HEADROOM;
pub use params::{BusyPoll, TxMode, UmemParams, XskMode, XskParams};
pub use tx_metadata::{TxFeatures, TxMetadataMode, TxTimestamp};
pub use umem::Umem;
