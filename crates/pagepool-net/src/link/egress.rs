//! What is on the way of packets that leave a link: queueing disciplines, rules of nftables and taps, changes
//! of the first, and what drivers do for them.

pub(crate) mod changes;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod drop_rule;
pub(super) mod qdisc;
pub(crate) mod rulesets;
pub(crate) mod taps;
