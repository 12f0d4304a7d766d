//! Which queue of a card gets which flow.

pub(super) mod spread;
