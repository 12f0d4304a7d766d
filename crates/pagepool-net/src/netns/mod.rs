//! Network namespaces that live no longer than this process, the links in them, and what is needed to try a device on
//! them: no other program, and nothing that stays behind.
//!
//! [`Namespace`] holds one. [`Netlink`] and [`Ethtool`] make and ask links, in whichever namespace they were opened.
//! [`cautions`] says which interfaces one should not touch.

mod caution;
mod coalesce;
mod error;
mod ethtool;
mod frame_socket;
mod frame_source;
mod link;
mod message;
mod namespace;
mod netlink;
mod numbered;
mod route;
mod steering;
mod sys;
mod tcp;
mod two_hosts;

pub use caution::{Caution, SshSession, cautions, session_links};
pub use error::NetError;
pub use ethtool::{Channels, Ethtool, Offload};
pub use frame_socket::{FrameBatch, FrameSocket};
pub use frame_source::{FrameSource, Sending, SourceParams, SourceReport};
pub use link::{AttachedXdp, Link, Mac, OperState, XdpMode};
pub use namespace::Namespace;
pub use netlink::{Netlink, VethEnd};
pub use numbered::{Arrival, NumberedFrames, Tally};
pub use tcp::{TcpParams, TcpReport, TcpTransfer};
pub use two_hosts::{Between, Host, TwoHosts, TwoHostsParams};

#[cfg(any(test, feature = "testing"))]
pub(crate) use netlink::read_all;
