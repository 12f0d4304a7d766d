//! The pool: made, bound to a thread, refilled, ended.

pub(crate) mod bound;
pub(crate) mod deferred;
pub(crate) mod ffi;
pub(crate) mod params;
pub(crate) mod pool_ref;
pub(crate) mod refill;
pub(crate) mod shutdown;
pub(crate) mod use_counts;
