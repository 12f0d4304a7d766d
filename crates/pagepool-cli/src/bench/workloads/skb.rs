//! Packets for stacks: what their blocks, clones, merges and `Bytes` cost beside the pages that they lie in.

use std::hint::black_box;
use std::rc::Rc;

use pagepool::{Bound, SkBuff, SkbCache, XdpBuff, XdpFrame};

use super::owner::CACHE_ONLY;
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::workloads::pools;
use crate::report::error::error_chain;

/// Packets that are merged into one.
const MERGED: usize = 16;
/// Headers that a stack takes off before it merges.
const HEADERS: usize = 54;

/// Built, cloned, merged and converted on the owner's core.
pub const TABLE: &[Workload] = &[
    Workload {
        name: "skb_build_free",
        about: "allocate a page, make a frame and an SkBuff of it, drop that",
        rules: CACHE_ONLY,
        ready: build_free,
        ..Workload::USUAL
    },
    Workload {
        name: "skb_clone_free",
        about: "clone an SkBuff, drop the clone",
        ready: clone_free,
        ..Workload::USUAL
    },
    Workload {
        name: "skb_coalesce",
        about: "as skb_build_free, 16 of them merged into one that is dropped",
        rules: CACHE_ONLY,
        weight: 4,
        ready: coalesce,
        ..Workload::USUAL
    },
    Workload {
        name: "bytes_roundtrip",
        about: "allocate a page, make a frame and Bytes of it, drop those",
        rules: CACHE_ONLY,
        weight: 4,
        ready: bytes_roundtrip,
        ..Workload::USUAL
    },
];

#[inline(always)]
fn frame(pool: &Bound) -> XdpFrame {
    XdpFrame::from(XdpBuff::received(pools::page(pool), 1500).expect("the pool is made for packets of 1514"))
}

#[inline(always)]
fn packet(pool: &Bound, cache: &SkbCache) -> SkBuff {
    SkBuff::from_frame(cache, frame(pool)).expect("the cache has more blocks than the workload holds")
}

fn made() -> Result<(Rc<Bound>, SkbCache), String> {
    let cache = SkbCache::new(64).map_err(|error| error_chain(&error))?;
    Ok((pools::bound(pools::packets())?, cache))
}

fn build_free() -> Result<Ready, String> {
    let (pool, cache) = made()?;
    let counters = pools::counters_of(&pool);
    let run = move |n| (0..n).for_each(|_| drop(black_box(packet(&pool, &cache))));
    Ok(Ready::one_core(run).counting(counters))
}

fn clone_free() -> Result<Ready, String> {
    let (pool, cache) = made()?;
    let counters = pools::counters_of(&pool);
    let one = packet(&pool, &cache);
    let run = move |n| (0..n).for_each(|_| drop(black_box(one.clone())));
    Ok(Ready::one_core(run).counting(counters))
}

fn coalesce() -> Result<Ready, String> {
    let (pool, cache) = made()?;
    let counters = pools::counters_of(&pool);
    let payload = move || {
        let mut packet = packet(&pool, &cache);
        packet.pull(HEADERS).map(|()| packet).expect("a packet has headers")
    };
    let run = move |n| {
        for _ in 0..n / MERGED {
            let mut stream = payload();
            for _ in 1..MERGED {
                let merged = stream.try_coalesce(payload());
                black_box(merged.expect("17 fragments fit"));
            }
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn bytes_roundtrip() -> Result<Ready, String> {
    let (pool, _) = made()?;
    let counters = pools::counters_of(&pool);
    let run = move |n| {
        for _ in 0..n {
            frame(&pool).into_bytes().into_iter().flatten().for_each(|part| drop(black_box(part)));
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}
