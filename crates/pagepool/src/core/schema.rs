//! Describes where observers of the published file find a pool's values.

use std::mem::offset_of;

use crate::core::pool_core::PoolCore;
use crate::holders::table::HolderHead;
use crate::recycle::cache::Cache;
use crate::recycle::lane::Lane;
use crate::recycle::ring::ReturnRing;
use crate::stats::{Counters, DeferredCounters, DeferredCounts};
use crate::sys::published_layout::{IN_DEFERRED, IN_HOLDERS, IN_LANE, IN_POOL, SchemaRow, text};

/// Each value is the sum of all rows with its name.
pub(crate) fn schema() -> Vec<SchemaRow> {
    let counters = [offset_of!(PoolCore, own.0.counts), offset_of!(PoolCore, returned)];
    let stats = counters.into_iter().flat_map(|counters| {
        Counters::PLACES.iter().map(move |&(name, at)| row("stats.", name, IN_POOL, counters + at, 8))
    });
    let pushed = offset_of!(PoolCore, returned) + offset_of!(Counters, recycle_ring);
    let taken = offset_of!(PoolCore, ring) + ReturnRing::PAGES_TAKEN_AT;
    let frags_taken = offset_of!(PoolCore, ring) + ReturnRing::FRAGS_TAKEN_AT;
    let cache = offset_of!(PoolCore, own.0.cache) + Cache::COUNT_AT;
    let idle_cache = offset_of!(HolderHead, idle_cache) + Cache::COUNT_AT;
    let places = [
        row("stats.", "recycle_ring", IN_POOL, offset_of!(PoolCore, late_ring), 8),
        row("stats.", "release", IN_POOL, offset_of!(PoolCore, late), 8),
        row("inflight.", "cache", IN_POOL, cache, size_of::<usize>()),
        row("inflight.", "cache", IN_HOLDERS, idle_cache, size_of::<usize>()),
        row("inflight.", "frag", IN_POOL, offset_of!(PoolCore, own.0.frag_open), 1),
        row("inflight.", "ring", IN_POOL, pushed, 8),
        SchemaRow { sign: -1, ..row("inflight.", "ring", IN_POOL, taken, 8) },
        row("inflight.", "deferred", IN_DEFERRED, offset_of!(DeferredCounts, pages), 8),
        row("", "ring_frags", IN_POOL, offset_of!(PoolCore, ring_frags), 8),
        SchemaRow { sign: -1, ..row("", "ring_frags", IN_POOL, frags_taken, 8) },
        row("", "in_frags", IN_POOL, offset_of!(PoolCore, own.0.in_frags), 8),
        row("", "in_frags", IN_POOL, offset_of!(PoolCore, split_elsewhere), 8),
        row("", "frag_waste", IN_POOL, offset_of!(PoolCore, own.0.frag_waste), 8),
        row("", "owner", IN_POOL, offset_of!(PoolCore, owner), 8),
    ];
    let lanes = Lane::PLACES.into_iter().map(|(name, at, bytes)| row("", name, IN_LANE, at, bytes));
    let counters = offset_of!(DeferredCounts, counters);
    let deferred = DeferredCounters::PLACES.iter();
    let deferred = deferred.map(|&(name, at)| row("deferred.", name, IN_DEFERRED, counters + at, 8));
    stats.chain(places).chain(lanes).chain(deferred).collect()
}

fn row(group: &str, name: &str, block: u32, offset: usize, bytes: usize) -> SchemaRow {
    let name = text(&format!("{group}{name}"));
    SchemaRow { name, block, offset: offset as u32, width: bytes as u32, sign: 1 }
}
