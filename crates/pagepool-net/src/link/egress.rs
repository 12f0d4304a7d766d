//! What is on the way of packets that leave a link: queueing disciplines and taps, and changes of the former.

pub(crate) mod changes;
pub(super) mod qdisc;
pub(crate) mod taps;
