//! Offloads: their names, which of them falsify the packets that XDP sees, and how to hold them off.

pub(super) mod name_text;
mod namespace_place;

mod stack;

pub(super) mod fault;
pub(super) mod hold;
pub(super) mod kind;
pub(super) mod other_namespace;
pub(super) mod sources;
