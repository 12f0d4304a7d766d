//! The pool: creation, binding to a thread, allocation, refill, end.

pub(crate) mod alloc;
pub(crate) mod alloc_addr;
pub(crate) mod bound;
pub(crate) mod create;
pub(crate) mod defer;
pub(crate) mod deferred_queue;
pub(crate) mod ffi;
pub(crate) mod params;
pub(crate) mod pool_ref;
pub(crate) mod refill;
pub(crate) mod shutdown;
pub(crate) mod unbound;
pub(crate) mod use_counts;
