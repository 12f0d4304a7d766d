//! Offloads: what they are called, which of them falsify the packets that a program takes at XDP, and how
//! these are held off while it does.

pub(super) mod name_text;
mod namespace_place;

mod stack;

pub(super) mod fault;
pub(super) mod hold;
pub(super) mod kind;
pub(super) mod other_namespace;
pub(super) mod sources;
