//! What the proofs run on: a plain provider, failure injectors, the operation list and its model.
//!
//! Behind the feature `testing`; not part of what is promised between versions.

mod plain;

pub use plain::PlainMemory;
