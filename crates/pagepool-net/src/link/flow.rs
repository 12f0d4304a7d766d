//! Which queue of a card gets which flow.

mod claim;
mod placed_rules;
pub(super) mod rule;
pub(super) mod rules;
pub(super) mod spread;
