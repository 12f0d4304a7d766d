//! Which queue of a card gets which flow.

mod claim;
pub(super) mod spread;
