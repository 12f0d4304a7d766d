//! `page_frag`, the rival in the thread "page_pool: introduce page_pool_alloc() API", over an arena like the
//! pool's.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::frags::{MTU_1500, MTU_8000};
use crate::bench::measure::counted::{Counted, Moves, Rule};
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::rivals::page_frag::{CarvedFrag, PageFrag};
use crate::bench::workloads::pools;

/// Dropped at once, so that a page is reused in place; and 64 in flight, so that it hardly ever is.
pub const TABLE: &[Workload] = &[
    Workload {
        name: "page_frag_2090",
        about: "a page_frag look-alike: allocate a fragment of 2090 bytes, drop it",
        rules: &[Rule(&["reused_in_place"], Moves::Share(1, 15))],
        ready: || one_in_flight(MTU_1500),
        ..Workload::USUAL
    },
    Workload {
        name: "page_frag_2090_burst64",
        about: "the same with 64 in flight: nearly every page comes from the arena",
        rules: MOSTLY_FRESH_15,
        ready: || burst64(MTU_1500),
        ..Workload::USUAL
    },
    Workload {
        name: "page_frag_8590",
        about: "allocate a fragment of 8590 bytes, drop it",
        rules: &[Rule(&["reused_in_place"], Moves::Share(1, 3))],
        ready: || one_in_flight(MTU_8000),
        ..Workload::USUAL
    },
    Workload {
        name: "page_frag_8590_burst64",
        about: "the same with 64 in flight: nearly every page comes from the arena",
        rules: MOSTLY_FRESH_3,
        ready: || burst64(MTU_8000),
        ..Workload::USUAL
    },
];

/// A page for every 15 fragments; it is reused only where the first fragment of a burst begins it.
const MOSTLY_FRESH_15: &[Rule] = &[
    Rule(&["refilled", "reused_in_place"], Moves::Share(1, 15)),
    Rule(&["reused_in_place"], Moves::AtMost(1, 64)),
];
/// The same with 3 fragments.
const MOSTLY_FRESH_3: &[Rule] = &[
    Rule(&["refilled", "reused_in_place"], Moves::Share(1, 3)),
    Rule(&["reused_in_place"], Moves::AtMost(1, 64)),
];

#[inline(always)]
fn frag(cache: &PageFrag, size: usize) -> CarvedFrag<'_> {
    cache.alloc(size).expect("the arena has more pages than the workload holds")
}

/// One fragment at a time, dropped at once.
pub fn one_in_flight(size: usize) -> Result<Ready, String> {
    let cache = Rc::new(PageFrag::new(pools::arena(pools::PAGES)?));
    let counters = counters_of(&cache);
    let run = move |n| {
        for _ in 0..n {
            let frag = frag(&cache, size);
            compiler_fence(Ordering::SeqCst); // as in page_direct
            drop(frag);
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

/// 64 fragments, then 64 drops.
pub fn burst64(size: usize) -> Result<Ready, String> {
    let cache = Rc::new(PageFrag::new(pools::arena(pools::PAGES)?));
    let counters = counters_of(&cache);
    let run = move |n| {
        let mut burst = Vec::with_capacity(64);
        for _ in 0..n / 64 {
            burst.extend((0..64).map(|_| frag(&cache, size)));
            black_box(&burst);
            burst.clear();
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn counters_of(cache: &Rc<PageFrag>) -> impl Fn() -> Counted + 'static {
    let cache = cache.clone();
    move || Counted::from_fields([("refilled", cache.refills()), ("reused_in_place", cache.reuses())])
}
