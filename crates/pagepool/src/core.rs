//! The pool's shared state, its geometry, its names, and the registry of all pools.

pub(crate) mod end_watch;
pub(crate) mod geometry;
pub(crate) mod pool_core;
pub(crate) mod raw_line;
pub(crate) mod registry;
pub(crate) mod schema;
pub(crate) mod short_name;
