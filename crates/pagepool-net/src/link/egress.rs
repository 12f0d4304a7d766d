//! What affects packets that leave a link: queueing disciplines and their changes, nftables rules and taps.

pub(crate) mod changes;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod drop_rule;
pub(super) mod qdisc;
pub(crate) mod rulesets;
pub(crate) mod taps;
