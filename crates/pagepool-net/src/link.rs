//! Queries and changes network interfaces: a netlink client and an ethtool client.
//!
//! [`Netlink`] creates, queries and changes links, addresses and routes in the namespace in which it was
//! opened; [`Ethtool`] queries their drivers. [`cautions`] says which interfaces to leave alone, and
//! [`offload_faults`] which offloads falsify the packets that XDP sees. [`KernelPagePools`] lists the page
//! pools of the kernel's drivers.

mod caution;
pub(crate) mod egress;
mod error;
mod ethtool;
mod exchange;
mod flow;
mod link_info;
mod live_frames;
pub(crate) mod lookup;
mod message;
pub(crate) mod netdev;
mod netlink;
mod offload;
mod promiscuous;
#[cfg(any(test, feature = "testing"))]
mod read_all;
mod route;
mod sys;

pub use caution::{Caution, SshSession, cautions, session_links};
pub use egress::qdisc::TokenBucket;
pub use error::NetError;
pub use ethtool::{Channels, Ethtool};
pub use flow::spread::HeldFlowSpread;
pub use link_info::{AttachedXdp, LinkElsewhere, LinkInfo, Mac, OperState, XdpMode};
#[doc(hidden)]
pub use live_frames::LiveFrames;
pub use netdev::features::XdpFeatures;
pub use netdev::kernel_pool::{KernelPagePool, KernelPoolProvider, KernelPoolStats};
pub use netdev::kernel_pools::KernelPagePools;
pub use netlink::{Netlink, VethEnd};
pub use offload::fault::{HiddenPeer, OffloadFault, OffloadOwner};
pub use offload::hold::HeldOffloads;
pub use offload::kind::Offload;
pub use offload::name_text::shell_word;
pub use offload::other_namespace::OtherNamespace;
pub use offload::sources::{OffloadSources, offload_faults};
pub use promiscuous::Promiscuous;

#[cfg(any(test, feature = "testing"))]
pub(crate) use read_all::read_all;
