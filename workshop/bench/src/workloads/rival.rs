//! `page_frag`, the rival in the thread "page_pool: introduce page_pool_alloc() API", over an arena like the
//! pool's.

use std::rc::Rc;

use super::frags::{MTU_1500, MTU_8000};
use crate::measure::counted::{Moves, Rule};
use crate::measure::workload::{Ready, Workload};
use crate::rivals::page_frag::{CarvedFrag, PageFrag};
use crate::workloads::pools;

/// Dropped at once, which reuses pages in place; or with 64 in flight, which hardly does.
pub const TABLE: &[Workload] = &[
    Workload::new("page_frag_2090", || one_in_flight(MTU_1500))
        .about("a page_frag look-alike: allocate a fragment of 2090 bytes, drop it")
        .rules(&[Rule(&["reused_in_place"], Moves::Share(1, 15))]),
    Workload::new("page_frag_2090_burst64", || burst64(MTU_1500))
        .about("64 fragments of 2090 bytes in flight: nearly every page comes from the arena")
        .rules(MOSTLY_FRESH_15),
    Workload::new("page_frag_8590", || one_in_flight(MTU_8000))
        .about("allocate a fragment of 8590 bytes, drop it")
        .rules(&[Rule(&["reused_in_place"], Moves::Share(1, 3))]),
    Workload::new("page_frag_8590_burst64", || burst64(MTU_8000))
        .about("64 fragments of 8590 bytes in flight: nearly every page comes from the arena")
        .rules(MOSTLY_FRESH_3),
];

/// A page for every 15 fragments; reused only if the first fragment of a burst begins it.
const MOSTLY_FRESH_15: &[Rule] = &[
    Rule(&["refilled", "reused_in_place"], Moves::Share(1, 15)),
    Rule(&["reused_in_place"], Moves::AtMost(1, 64)),
];
/// A page for every 3 fragments; reused only if the first fragment of a burst begins it.
const MOSTLY_FRESH_3: &[Rule] = &[
    Rule(&["refilled", "reused_in_place"], Moves::Share(1, 3)),
    Rule(&["reused_in_place"], Moves::AtMost(1, 64)),
];

#[inline(always)]
fn frag(cache: &PageFrag, size: usize) -> CarvedFrag<'_> {
    cache.alloc(size).expect("the arena has more pages than the workload holds")
}

fn one_in_flight(size: usize) -> Result<Ready, String> {
    one_core(move |cache, n| pools::one_by_one(n, || frag(cache, size)))
}

pub fn burst64(size: usize) -> Result<Ready, String> {
    one_core(move |cache, n| {
        pools::in_bursts(n, 64, &mut Vec::with_capacity(64), || frag(cache, size), Vec::clear);
    })
}

fn one_core(run: impl Fn(&PageFrag, usize) + 'static) -> Result<Ready, String> {
    let cache = Rc::new(PageFrag::new(pools::arena(pools::PAGES)?));
    let counted = cache.clone();
    Ok(Ready::one_core(move |n| run(&cache, n)).counting(move || counted.counted()))
}
