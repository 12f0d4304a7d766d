//! The arguments of C's functions: structs that may grow, texts, ranges.

pub(crate) mod arena_params;
pub(crate) mod pool_params;
pub(crate) mod range;
pub(crate) mod sized;
