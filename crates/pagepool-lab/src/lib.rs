//! What devices and forwarders are tried on: network namespaces, two hosts in them, and packets that are accounted for.

mod coalesce;
mod frame_socket;
mod frame_source;
mod namespace;
mod numbered;
mod poll;
mod steering;
mod sys;
mod tcp;
mod two_hosts;

pub use frame_socket::{FrameBatch, FrameSocket};
pub use frame_source::{FrameSource, SourceMode, SourceParams, SourceReport};
pub use namespace::Namespace;
pub use numbered::{Arrival, NumberedFrames, Tally};
pub use pagepool_net::link;
pub use tcp::{TcpParams, TcpReport, TcpTransfer};
pub use two_hosts::{Between, Host, TwoHosts, TwoHostsParams};
