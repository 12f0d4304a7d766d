//! Which queue of a card gets which flow.

mod claim;
pub(super) mod rule;
pub(super) mod rules;
pub(super) mod spread;
