//! Arguments of the C functions: structs that may grow, result pointers, arrays, texts, ranges.

pub(crate) mod arena_params;
pub(crate) mod entry_params;
pub(crate) mod out;
pub(crate) mod pool_params;
pub(crate) mod range;
pub(crate) mod sized;
