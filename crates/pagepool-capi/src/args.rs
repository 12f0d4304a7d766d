//! The arguments of C's functions: structs that may grow, places for results, arrays, texts, ranges.

pub(crate) mod arena_params;
pub(crate) mod entry_params;
pub(crate) mod out;
pub(crate) mod pool_params;
pub(crate) mod range;
pub(crate) mod sized;
