//! Packets for stacks: the cost of blocks, clones, merges and `Bytes` in addition to pages.

use std::hint::black_box;

use pagepool::{Bound, XdpBuff, XdpFrame};
use pagepool_skb::{SkBuff, SkbCache};

use super::owner::CACHE_ONLY;
use crate::measure::workload::{Ready, Workload};
use crate::workloads::pools;
use pagepool_cli::report::error_chain;

const MERGED: usize = 16;
/// Bytes that a stack removes before it merges.
const HEADERS: usize = 54;

pub const TABLE: &[Workload] = &[
    Workload::new("skb_build_free", build_free)
        .about("allocate a page, make a frame and an SkBuff of it, drop that")
        .rules(CACHE_ONLY),
    Workload::new("skb_clone_free", clone_free).about("clone an SkBuff, drop the clone"),
    Workload::new("skb_coalesce", coalesce)
        .about("allocate 16 pages, make an SkBuff of each, merge them into one, drop it")
        .rules(CACHE_ONLY)
        .weight(4),
    Workload::new("bytes_roundtrip", bytes_roundtrip)
        .about("allocate a page, make a frame and Bytes of it, drop those")
        .rules(CACHE_ONLY)
        .weight(4),
];

#[inline(always)]
fn frame(pool: &Bound) -> XdpFrame {
    XdpFrame::from(XdpBuff::received(pools::page(pool), 1500).expect("the pool is made for packets of 1514"))
}

#[inline(always)]
fn packet(pool: &Bound, cache: &SkbCache) -> SkBuff {
    SkBuff::from_frame(cache, frame(pool)).expect("the cache has more blocks than the workload holds")
}

fn made() -> Result<(Bound, SkbCache), String> {
    let cache = SkbCache::new(64).map_err(|error| error_chain(&error))?;
    Ok((pools::bound(pools::packets())?, cache))
}

fn build_free() -> Result<Ready, String> {
    let (pool, cache) = made()?;
    let run = move |pool: &Bound, n| (0..n).for_each(|_| drop(black_box(packet(pool, &cache))));
    Ok(pools::one_core_over(pool, run))
}

fn clone_free() -> Result<Ready, String> {
    let (pool, cache) = made()?;
    let one = packet(&pool, &cache);
    Ok(pools::one_core_over(pool, move |_, n| (0..n).for_each(|_| drop(black_box(one.clone())))))
}

fn coalesce() -> Result<Ready, String> {
    let (pool, cache) = made()?;
    let payload = move |pool: &Bound| {
        let mut packet = packet(pool, &cache);
        packet.pull(HEADERS).map(|()| packet).expect("a packet has headers")
    };
    let run = move |pool: &Bound, n| {
        for _ in 0..n / MERGED {
            let mut stream = payload(pool);
            for _ in 1..MERGED {
                let merged = stream.try_coalesce(payload(pool));
                black_box(merged.expect("17 fragments fit"));
            }
        }
    };
    Ok(pools::one_core_over(pool, run))
}

fn bytes_roundtrip() -> Result<Ready, String> {
    pools::one_core(pools::packets(), |pool, n| {
        for _ in 0..n {
            frame(pool).into_bytes().into_iter().flatten().for_each(|part| drop(black_box(part)));
        }
    })
}
