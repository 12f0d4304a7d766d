//! Pages whose last fragments have returned, before the owner counts them.
//!
//! What   fragments that return on other threads are messages until the owner counts them (I5). Reading the
//!        messages finds the pages that are no longer held.
//! Who    any thread that reports where the pages are. It takes no message and writes nothing.
//! Torn   a message that the owner takes during the scan may still count: for a moment a page may be in two
//!        places.

use std::collections::BTreeMap;

use crate::core::pool_core::PoolCore;
use crate::mem::page::PageIdx;
use crate::sys::sync::Ordering;

/// The pages by number. Time in proportion to the waiting messages of fragments.
pub(crate) fn complete_pages(pool: &PoolCore) -> Vec<PageIdx> {
    let mut waiting = BTreeMap::new();
    let mut returned = |page: PageIdx, n: u32| *waiting.entry(page.0).or_insert(0u32) += n;
    let head_mask = pool.geometry.head_mask;
    let lanes = pool.lanes.all().iter().filter(|lane| lane.frags_in() > 0);
    lanes.for_each(|lane| lane.each_frag(head_mask, &mut returned));
    if pool.frags_in_ring() > 0 {
        pool.ring.each_frag(head_mask, &mut returned);
        overflowed(pool).into_iter().for_each(|(page, n)| returned(page, n));
    }
    let is_complete = |&(page, n): &(u32, u32)| {
        let meta = pool.page_meta(PageIdx(page));
        let out = meta.frags.load(Ordering::Relaxed).wrapping_add(meta.parts.load(Ordering::Relaxed));
        out > 0 && out <= n
    };
    waiting.into_iter().filter(is_complete).map(|(page, _)| PageIdx(page)).collect()
}

/// Fragments that found no room for a message. Allocates nothing under the lock, because returners wait for
/// it.
fn overflowed(pool: &PoolCore) -> Vec<(PageIdx, u32)> {
    let mut all = Vec::with_capacity(pool.frags_in_ring() as usize);
    let returns = pool.returns.lock();
    let mut next = returns.overflow;
    while let Some(page) = next.checked_sub(1).map(PageIdx).filter(|_| all.len() < all.capacity()) {
        let meta = pool.page_meta(page);
        all.push((page, meta.overflow.load(Ordering::Relaxed)));
        next = meta.next.load(Ordering::Relaxed).saturating_sub(1);
    }
    all
}
