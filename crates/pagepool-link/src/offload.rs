//! Which offloads falsify the packets that XDP sees, and how to hold them off.

mod namespace_place;

mod stack;

pub(crate) mod fault;
pub(crate) mod hold;
pub(crate) mod other_namespace;
pub(crate) mod sources;
