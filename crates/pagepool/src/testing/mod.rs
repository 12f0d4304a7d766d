//! What the proofs run: a plain provider, an IOMMU that checks, providers that fail, and the conformance suite of the
//! seams.
//!
//! Behind the feature `testing`, so that other crates can run the same suites over their own providers and domains.

mod conformance;
mod fail_nth;
mod iommu;
mod plain;

pub use conformance::conformance_provider;
pub use fail_nth::FailNth;
pub use iommu::{CheckingIommu, Fault, IommuCounts, IommuEvent};
pub use plain::PlainMemory;
