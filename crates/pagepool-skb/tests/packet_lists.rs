//! Packets against plain vectors of bytes: random lists of operations, every packet compared after each.
//!
//! `PROPTEST_CASES` says how many lists, `PROPTEST_RNG_SEED` which ones, and `PAGEPOOL_RANDOM_SEEDS=1` asks
//! for new ones; the same lists are run by the fuzzer (`fuzz/fuzz_targets/packets.rs`).

use pagepool_testing::seed;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::packet_run::{PacketOp, PacketSetup, run_packets};

#[test]
fn packets_have_the_bytes_that_they_must_have() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed("PROPTEST_RNG_SEED")),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Default::default()
    };
    let op = any::<[u8; 3]>().prop_map(PacketOp::from_bytes);
    let lists = (any::<[u8; 2]>().prop_map(PacketSetup::from_bytes), prop::collection::vec(op, 1..120));
    proptest!(config, |((setup, ops) in lists)| {
        run_packets(setup, &ops);
    });
}
