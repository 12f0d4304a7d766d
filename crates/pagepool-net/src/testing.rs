//! For the tests and benchmarks of this repository, behind the feature `testing`.

pub use crate::xsk::{LoadedMatch, TailAdjuster, XskKernelSide, umem_in_memory, xsk_in_memory};
