//! For tests: a plain provider, a checking IOMMU, failing providers, the conformance suite of providers,
//! operations on pools with the model that predicts them, and operations on packets.
//!
//! Behind the feature `testing`, so that other crates can test their own providers and domains.

mod conformance;
mod fail_nth;
mod iommu;
mod model;
mod op;
mod packet_op;
mod packets;
mod plain;
mod run;
mod seed;
mod system_page;

pub use conformance::conformance_provider;
pub use fail_nth::FailNth;
pub use iommu::{CheckingIommu, IommuCounts, IommuEvent, IommuFault};
pub use model::{PageToken, PoolsModel, Who};
pub use op::{Op, Setup};
pub use packet_op::{PacketOp, PacketSetup};
pub use packets::run_packets;
pub use plain::PlainMemory;
pub use run::run;
pub use seed::seed;
pub use system_page::SystemPage;
