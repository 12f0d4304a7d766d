//! Network interfaces of Linux: a netlink client, an ethtool client, and network namespaces. No C library.
//!
//! * [`Netlink`] creates, queries and changes links, addresses, routes and token buckets in the network
//!   namespace in which it was opened.
//! * [`Ethtool`] queries and changes what drivers do: queues, rings, offloads.
//! * [`cautions`] names what uses an interface: the default route, your SSH session.
//! * [`offload_faults`] names the offloads that change packets before XDP sees them, and the `ethtool -K`
//!   line that turns them off. [`OffloadFault::hold_off`] turns one off until the value is dropped.
//! * [`HeldFlowSpread`] makes a NIC spread flows over some of its queues, until the value is dropped. A
//!   killed process restores nothing. [`Promiscuous`] puts an interface into promiscuous mode, until the
//!   value is dropped or the process is killed.
//! * [`Tap`] is an interface whose other end is a file of this process.
//! * [`KernelPagePools`] lists the page pools of the kernel's drivers, [`XdpFeatures`] what drivers can do.
//! * [`Namespace`] is a network namespace, held by a thread of this process. [`TwoHosts`] makes two of them,
//!   each with a link whose other end is free for a forwarder. [`TcpTransfer`] sends a checked stream of
//!   bytes from one to the other.
//!
//! Requests go to the kernel directly. A [`LinkError`] has the kernel's errno and text, and the remedy. It
//! names a missing capability. Any bytes from the kernel yield a value or an error.
//!
//! # Examples
//!
//! This lists the links of a new namespace:
//!
//! ```
//! use pagepool_link::{LinkError, Namespace};
//!
//! fn links() -> Result<(), LinkError> {
//!     let lab = Namespace::new("lab")?; // requires CAP_SYS_ADMIN and CAP_NET_ADMIN, as root has them
//!     for link in lab.netlink()?.links()? {
//!         println!("{} has {} receive queues", link.name, link.rx_queues);
//!     }
//!     Ok(())
//! }
//! # links().or_else(|error| if error.is_permission() { Ok(()) } else { Err(error) })?;
//! # Ok::<(), LinkError>(())
//! ```

mod caution;
#[doc(hidden)] // what the crate `pagepool-net` watches before it sends past the kernel
pub mod egress;
mod error;
mod ethtool;
mod exchange;
mod flow;
mod link_info;
#[doc(hidden)] // what the tests of the workspace build requests of
pub mod message;
mod namespace;
mod netdev;
mod netlink;
mod offload;
mod promiscuous;
mod qdisc;
mod route;
mod shell_word;
#[doc(hidden)] // what the system calls of `pagepool-net` share with these
pub mod sys;
mod tap;
mod tcp;
#[doc(hidden)] // for tests and fuzzers of the workspace
pub mod testing;
mod two_hosts;

pub use caution::{Caution, SshSession, cautions};
pub use error::LinkError;
pub use ethtool::offload::Offload;
pub use ethtool::{Channels, Ethtool};
pub use flow::spread::HeldFlowSpread;
pub use link_info::{AttachedXdp, LinkInfo, Mac, OperState, XdpMode};
pub use namespace::Namespace;
pub use netdev::features::XdpFeatures;
pub use netdev::kernel_pool::{KernelPagePool, KernelPoolProvider, KernelPoolStats};
pub use netdev::kernel_pools::KernelPagePools;
pub use netlink::{Netlink, VethEnd};
pub use offload::fault::{OffloadFault, OffloadOwner};
pub use offload::hold::HeldOffloads;
pub use offload::sources::{OffloadSources, offload_faults};
pub use promiscuous::Promiscuous;
pub use shell_word::shell_word;
pub use tap::Tap;
pub use tcp::{TcpParams, TcpReport, TcpTransfer};
pub use two_hosts::{Host, TwoHosts, TwoHostsParams};
