//! Which queue of a card gets which flow.

mod claim;
pub(crate) mod spread;
