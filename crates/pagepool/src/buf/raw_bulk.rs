//! Returns many buffers by their addresses.
//!
//! Who    any thread. The owner is looked up once per 64 addresses.
//! How    if addresses are offsets plus a constant, plain whole pages go straight into the owner's cache: all
//!        page numbers are computed without a branch, then the word of each is read. The first other address
//!        ends this. It and up to 63 behind it are taken one by one: plain pages return together, others
//!        singly.
//! Cost   plain pages on the owner's thread: about nine instructions each. On other threads: a lookup each,
//!        and a claim per 64.

// UNSAFETY: words of checked page numbers are read without another check.
#![expect(unsafe_code)]

use crate::buf::batch::Batch;
use crate::buf::raw_buf::{RawError, from_raw, page_at};
use crate::buf::sink::Receive;
use crate::core::pool_core::PoolPtr;
use crate::core::raw_line::RawPages;
use crate::mem::dma::DeviceAddr;
use crate::mem::page::PageIdx;
use crate::recycle::cache::OwnerProof;

/// See [`PoolRef::put_addr_bulk`](crate::PoolRef::put_addr_bulk).
#[inline]
pub(crate) fn put_addrs(pool: PoolPtr, addrs: &[DeviceAddr]) -> Result<(), RawError> {
    match addrs {
        [addr] => from_raw(pool, *addr).map(drop),
        _ => put_many(pool, addrs),
    }
}

/// Puts one plain whole page, given by its address's page number, into the owner's cache. Returns false, and
/// does nothing, if that is impossible.
#[inline(always)]
pub(crate) fn put_cached_page(pool: PoolPtr, owner: OwnerProof, page: u64) -> bool {
    let raw = &pool.own.raw;
    let take = || raw.plainly(|| raw.pages().take(page)).unwrap_or_default();
    let done = pool.own.cache.push_fast_if(owner, PageIdx(page as u32), take);
    if done {
        pool.own.counts.recycle_cached.add(1);
    }
    done
}

/// Puts plain whole pages into the owner's cache, from the first address on, while that is only a copy.
/// Returns how many; the next address is untouched.
#[inline(always)]
pub(crate) fn put_cached_addrs(pool: PoolPtr, owner: OwnerProof, addrs: &[DeviceAddr]) -> usize {
    let raw = &pool.own.raw;
    let Some(linear) = raw.mapping().and_then(|mapping| mapping.linear()) else { return 0 };
    let put = pool.own.cache.fill_fast(owner, addrs.len(), |space| {
        let (geometry, offsets) = (&pool.geometry, addrs.iter().map(|addr| addr.0.wrapping_sub(linear)));
        let pages = match raw.pages().find_all(geometry, offsets.clone(), space) {
            true => &*space,
            false => &space[..raw.pages().found(geometry, offsets.take(space.len()))],
        };
        // SAFETY: `find_all` checked that all are pages of the area, or `found` counted the leading ones that
        // are.
        raw.owner_takes(owner, |raw| unsafe { raw.take_all(pages) })
    });
    pool.own.counts.recycle_cached.add(put as u64);
    put
}

#[inline(never)]
fn put_many(pool: PoolPtr, addrs: &[DeviceAddr]) -> Result<(), RawError> {
    let (mut failed, mut left) = (Ok(()), addrs);
    while !left.is_empty() {
        let owner = pool.owner_here();
        let put = owner.map_or(0, |owner| put_cached_addrs(pool, owner, left));
        let (chunk, behind) = left[put..].split_at((left.len() - put).min(Batch::MAX));
        if !chunk.is_empty() {
            failed = failed.and(put_each(pool, owner, chunk));
        }
        left = behind;
    }
    failed
}

/// Returns addresses through a batch: behind an unusual address, without room in the cache, with syncs, or on
/// other threads.
#[inline(never)]
fn put_each(pool: PoolPtr, owner: Option<OwnerProof>, addrs: &[DeviceAddr]) -> Result<(), RawError> {
    let mut pages = [0; Batch::MAX];
    let raw = &pool.own.raw;
    let is_out = |&addr: &DeviceAddr| page_at(pool, addr).is_some_and(|page| raw.pages().is_out(page));
    let (taken, others) = match owner {
        Some(owner) => raw.owner_takes(owner, |raw| take_each(pool, addrs, &mut pages, raw)),
        None if addrs.iter().any(is_out) => raw.alone(|| take_each(pool, addrs, &mut pages, raw.pages())),
        None => (0, u64::MAX >> (Batch::MAX - addrs.len())),
    };
    let mut batch = Batch::empty(pool);
    batch.receive(pool, &pages[..taken]);
    batch.put();
    if others == 0 { Ok(()) } else { put_others(pool, addrs, others) }
}

/// Writes the numbers of the plain pages that it takes. Returns how many, and a bit for each other address.
fn take_each(pool: PoolPtr, addrs: &[DeviceAddr], pages: &mut [u32], raw: RawPages<'_>) -> (usize, u64) {
    let (mut taken, mut others) = (0, 0);
    for (at, &addr) in addrs.iter().enumerate() {
        match page_at(pool, addr).zip(pages.get_mut(taken)) {
            Some((page, place)) if raw.take(page) => {
                *place = page as u32;
                taken += 1;
            }
            _ => others |= 1 << at,
        }
    }
    (taken, others)
}

/// Returns other buffers than plain whole pages, all of them, and then the first error.
#[cold]
fn put_others(pool: PoolPtr, addrs: &[DeviceAddr], which: u64) -> Result<(), RawError> {
    let mut failed = Ok(());
    for (_, &addr) in addrs.iter().enumerate().filter(|(at, _)| which >> at & 1 != 0) {
        failed = failed.and(from_raw(pool, addr).map(drop));
    }
    failed
}
