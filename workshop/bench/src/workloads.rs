//! The tables of workloads, in printing order.

mod arena;
mod fifo;
pub mod frags;
pub mod handoff;
mod long_way;
mod owner;
mod packets;
pub mod pools;
pub mod remote;
mod rival;
mod skb;
mod waits;
pub mod yardsticks;

pub use frags::order3;
pub use rival::burst64 as page_frag_burst64;

use crate::measure::workload::Workload;

pub fn all() -> impl Iterator<Item = &'static Workload> {
    [
        yardsticks::TABLE,
        owner::TABLE,
        fifo::TABLE,
        long_way::TABLE,
        remote::TABLE,
        handoff::TABLE,
        frags::TABLE,
        skb::TABLE,
        rival::TABLE,
        arena::TABLE,
        packets::TABLE,
        packets::rings::TABLE,
        packets::virtio::TABLE,
        waits::TABLE,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_fits_its_column() {
        let names: Vec<_> = all().map(|workload| workload.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| name.len() <= 28));
        assert!(all().all(|workload| workload.linux.len() <= 22 && !workload.about.is_empty()));
    }
}
