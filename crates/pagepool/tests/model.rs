//! The pools against the model: random lists of operations, every counter and every place compared after
//! each.
//!
//! `PROPTEST_CASES` says how many lists, `PROPTEST_RNG_SEED` which ones, and `PAGEPOOL_RANDOM_SEEDS=1` asks
//! for new ones; the same lists are run by the fuzzer (`fuzz/fuzz_targets/model.rs`).

use std::sync::Mutex;

use pagepool::{Arena, ArenaParams};
use pagepool_testing::{Op, PlainMemory, Setup, run, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The model knows what two pools do when no other takes part.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let rng_seed = RngSeed::Fixed(seed("PROPTEST_RNG_SEED"));
    ProptestConfig {
        cases,
        rng_seed,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Default::default()
    }
}

fn lists(longest: usize) -> impl Strategy<Value = (Setup, Vec<Op>)> {
    let op = any::<[u8; 3]>().prop_map(Op::from_bytes);
    (any::<[u8; 4]>().prop_map(Setup::from_bytes), prop::collection::vec(op, 1..longest))
}

#[test]
fn pools_over_plain_memory_do_what_the_model_says() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    proptest!(cases(2000), |((setup, ops) in lists(200))| {
        run(setup, PlainMemory::new(setup.pages, setup.order).unwrap(), &ops);
    });
}

#[test]
fn pools_over_an_arena_do_what_the_model_says() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    proptest!(cases(500), |((setup, ops) in lists(150))| {
        let page_size = if setup.cache % 2 == 0 { 2048 } else { 4096 };
        // An arena has a multiple of 4096 bytes.
        let setup = Setup { pages: setup.pages.next_multiple_of(2), ..setup };
        let max_bytes = (setup.pages << setup.order) as u64 * page_size as u64;
        let arena = Arena::new(ArenaParams { max_bytes, page_size, ..Default::default() }).unwrap();
        run(setup, arena, &ops);
    });
}
