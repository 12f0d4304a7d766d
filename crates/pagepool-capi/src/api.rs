//! The exported functions, grouped by what they act on.

pub(crate) mod arena;
mod batch;
pub(crate) mod buf;
pub(crate) mod deferred;
pub(crate) mod domain;
pub(crate) mod pool;
mod publish;
mod skb;
mod version;
