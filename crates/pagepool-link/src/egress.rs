//! What affects packets that leave a link: changes of the link, nftables rules and taps.

pub mod changes;
pub mod rulesets;
pub mod taps;
