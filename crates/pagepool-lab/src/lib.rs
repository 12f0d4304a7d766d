//! Two hosts, and packets between them that are accounted for: what the command and the tests run against.
//!
//! A device or a forwarder is best tried between two kernels. This crate makes them on one machine, of
//! network namespaces and veth pairs: nothing to install, no second machine.
//!
//! * [`Namespace`]: a network namespace, held by a thread of this process.
//! * [`TwoHosts`]: two of those, each with a link whose other end is free for a forwarder.
//! * [`TcpTransfer`]: a transfer between the TCP of two namespaces, every byte checked.
//! * [`FrameSocket`] and [`FrameGenerator`]: raw frames, one by one, or as many as the kernel can make.
//! * [`Tap`]: a link whose other end is a file of this process.
//! * [`NumberedFrames`] and [`Tally`]: frames that carry a number and a checksum, and what arrived of them.
//! * [`TempFolder`]: a folder for files that nobody wants afterwards.
//! * [`guest`]: Linux guests under QEMU, for other kernels, cards and NUMA nodes than this machine has.
//! * [`link`]: the netlink and ethtool clients of `pagepool-net`, whose types appear here.
//!
//! **No traffic leaves the namespaces.** Their links are veth pairs whose ends lie in namespaces of this
//! process; IPv6 is off in them, so the kernel sends nothing by itself. [`NearNamespace::Current`] is the
//! exception: it puts the free ends where the caller is.
//!
//! **Nothing stays behind.** A namespace has no name and no file. The kernel removes it and its links when
//! the process ends, by whatever signal.
//!
//! **Threads.** A namespace belongs to a thread: [`Namespace::run`] and [`Namespace::spawn`] run code in it,
//! and a socket stays in the namespace that it was opened in, whichever thread uses it. All types may be sent
//! to other threads.
//!
//! Namespaces require `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, as root has them;
//! [`NetError::is_permission`](link::NetError::is_permission) tells that they are missing.

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
