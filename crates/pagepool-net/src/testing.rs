//! What the proofs over devices run: the conformance suite, and the rig that it runs a device in.
//!
//! Behind the feature `testing`, so that other crates can run the suite over their own devices.

mod conformance;
mod rig;

pub use conformance::device;
pub use rig::{Allowed, FarEnd, Rig};
