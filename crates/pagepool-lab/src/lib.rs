//! Two hosts on one machine, and packets between them that are accounted for, for the command and the tests.
//!
//! A device or a forwarder is best tried between two kernels. This crate makes them on one machine, from
//! network namespaces and veth pairs: nothing to install, no second machine.
//!
//! * [`Namespace`]: a network namespace, held by a thread of this process.
//! * [`TwoHosts`]: two namespaces, each with a link whose other end is free for a forwarder.
//! * [`TcpTransfer`]: a TCP transfer between two namespaces, every byte checked.
//! * [`FrameSocket`] and [`FrameGenerator`]: raw frames, one by one, or as many as the kernel can generate.
//! * [`Tap`]: a link whose other end is a file of this process.
//! * [`NumberedFrames`] and [`Tally`]: frames with a number and a checksum, and an account of those that
//!   arrived.
//! * [`TempFolder`]: a folder for temporary files.
//! * [`guest`]: Linux guests under QEMU, for other kernels, cards and NUMA nodes than this machine has.
//! * [`link`]: the netlink and ethtool clients of `pagepool-net`, whose types appear here.
//!
//! **No traffic leaves the namespaces.** Both ends of their veth pairs are in namespaces of this process,
//! without IPv6: the kernel sends nothing by itself. Only [`NearNamespace::Current`] puts the free ends into
//! the caller's namespace.
//!
//! **Nothing stays behind.** A namespace has no name and no file. The kernel removes it and its links when
//! the process exits or is killed.
//!
//! **Threads.** [`Namespace::run`] and [`Namespace::spawn`] run code in a namespace. A socket stays in the
//! namespace that it was opened in, whichever thread uses it. All types are `Send`.
//!
//! Namespaces require `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, as root has them;
//! [`NetError::is_permission`](link::NetError::is_permission) reports that they are missing.

mod coalesce;
mod frame_generator;
mod frame_socket;
pub mod guest;
mod namespace;
mod numbered;
mod skip;
mod steering;
mod sys;
mod tap;
mod tcp;
mod temp_folder;
mod two_hosts;

pub use frame_generator::{FrameGenerator, GeneratorMode, GeneratorParams, GeneratorReport};
pub use frame_socket::{FrameBatch, FrameSocket};
pub use namespace::Namespace;
pub use numbered::{Arrival, NumberedFrames, Tally};
pub use pagepool_net::link;
pub use skip::or_skip;
pub use tap::Tap;
pub use tcp::{TcpParams, TcpReport, TcpTransfer};
pub use temp_folder::TempFolder;
pub use two_hosts::{Host, NearNamespace, TwoHosts, TwoHostsParams};
