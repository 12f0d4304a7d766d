//! The table of rules.

mod back_ends;
mod buffers;
mod kernel;
mod memory;
mod packets;
mod placement;
mod slow_path;
mod sockets;

use super::rule::DoctorRule;

/// The rules of the doctor by cost, the worst first.
pub const RULES: &[DoctorRule] = &[
    sockets::LINK_DOWN,
    back_ends::BACK_END_LOST,
    packets::STARVED,
    packets::RX_RING_FULL,
    packets::RX_REFUSED,
    packets::CARD_DROPPED,
    packets::TX_LOST,
    packets::STACK_REFUSED,
    back_ends::BACK_END_RESTARTS,
    sockets::OFFLOADS,
    buffers::OUT_RISING,
    buffers::HELD_LONG,
    buffers::DETACHED,
    buffers::DEAD_HELD,
    back_ends::BACK_END_HUNG,
    slow_path::LOW_WATER,
    kernel::KERNEL_DETACHED,
    sockets::GENERIC_XDP,
    sockets::COPY_MODE,
    memory::NO_HUGE_PAGES,
    memory::COLOUR_LOST,
    placement::OFF_NODE_MEMORY,
    placement::OFF_NODE_CARD,
    placement::OFF_NODE_IRQ,
    placement::IRQ_ON_CPU,
    slow_path::RING_FULL,
    slow_path::WAIVED,
    slow_path::CACHE_FULL,
    slow_path::REFERENCED,
    slow_path::SLOW,
    placement::IRQS_ON_ONE_CPU,
    placement::GOVERNOR,
    kernel::KERNEL_SLOW,
    kernel::KERNEL_RING_FULL,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;
    use crate::doctor::rule::diagnose;

    #[test]
    fn each_rule_finds_its_problem_and_none_in_a_healthy_process() {
        let found = diagnose(RULES, &healthy::evidence());
        assert!(found.is_empty(), "{found:?}");
        for rule in RULES {
            let seen = |change: fn(&mut _)| {
                let mut evidence = healthy::evidence();
                change(&mut evidence);
                (rule.find)(&evidence)
            };
            let ill = seen(rule.case.ill);
            let said: Vec<_> =
                ill.iter().map(|finding| format!("{} {:?}", finding.seen, finding.fix)).collect();
            assert!(said.iter().any(|said| said.contains(rule.case.says)), "{}: {said:?}", rule.name);
            assert!(ill.iter().all(|finding| !finding.place.is_empty() && !finding.of.is_empty()));
            assert_eq!(seen(rule.case.well), [], "{}", rule.name);
        }
    }

    #[test]
    fn rules_have_unique_names_and_are_sorted_by_cost() {
        let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        assert!(RULES.is_sorted_by_key(|rule| rule.cost));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }

    #[test]
    fn pages_of_2_kib_have_no_colours_to_lose() {
        let mut evidence = healthy::evidence();
        (memory::COLOUR_LOST.case.ill)(&mut evidence);
        evidence.pool().page_bytes = 2048;
        assert_eq!((memory::COLOUR_LOST.find)(&evidence), []);
    }

    #[test]
    fn what_costs_packets_comes_before_what_makes_them_dearer() {
        let mut evidence = healthy::evidence();
        (slow_path::RING_FULL.case.ill)(&mut evidence);
        (packets::RX_RING_FULL.case.ill)(&mut evidence);
        (packets::TX_LOST.case.ill)(&mut evidence);
        evidence.socket().count("tx_dropped", 5_000_000);
        let found = diagnose(RULES, &evidence);
        let names: Vec<_> = found.iter().map(|of| of.rule.name).collect();
        assert_eq!(names[0], "tx_lost", "the rate decides among equal costs: {names:?}");
        assert_eq!(names[1..].first(), Some(&"rx_ring_full"), "{names:?}");
        assert_eq!(names.last(), Some(&"ring_full"), "{names:?}");
    }
}
