//! What is on the way of packets that leave a link: queueing disciplines and taps, changes of the former, and
//! what drivers do for them.

pub(crate) mod changes;
pub(crate) mod features;
pub(super) mod qdisc;
pub(crate) mod taps;
