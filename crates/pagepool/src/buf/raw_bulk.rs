//! Many buffers returned by their addresses.
//!
//! Who    any thread. The owner is looked up once per 64 addresses.
//! How    plain whole pages are taken back together and return together; whatever else an address is, and
//!        what is refused, is looked at one by one.
//! Cost   plain pages on the owner's thread: a lookup and a store each, and a copy into the cache. On other
//!        threads: a lookup and an exchange each.

use crate::buf::batch::Batch;
use crate::buf::raw_buf::{RawError, from_raw, page_at};
use crate::home::cache::OwnerProof;
use crate::mem::dma::DeviceAddr;
use crate::mem::page::{PAGE_SHIFT, PageIdx};
use crate::returns::pool_core::PoolPtr;

/// See [`PoolRef::put_addr_bulk`](crate::PoolRef::put_addr_bulk).
#[inline]
pub(crate) fn put_addrs(pool: PoolPtr, addrs: &[DeviceAddr]) -> Result<(), RawError> {
    match addrs {
        [addr] => from_raw(pool, *addr).map(drop),
        _ => put_many(pool, addrs),
    }
}

/// Puts one plain whole page into the owner's cache; says whether it did. Nothing happened if not.
#[inline(always)]
pub(crate) fn put_cached_addr(pool: PoolPtr, owner: OwnerProof, addr: DeviceAddr) -> bool {
    let Some(page) = page_at(pool, addr) else { return false };
    let done = pool.own.cache.has_plain_room(1)
        && pool.owner_takes(owner, |taking| pool.raw_pages().take(taking, page))
        && pool.own.cache.push_plain(owner, PageIdx(page as u32));
    if done {
        pool.own.counts.recycle_cached.add(1);
    }
    done
}

#[inline(never)]
fn put_many(pool: PoolPtr, addrs: &[DeviceAddr]) -> Result<(), RawError> {
    let mut failed = Ok(());
    for chunk in addrs.chunks(Batch::MAX) {
        let others = match pool.owner_here() {
            Some(owner) if pool.own.cache.has_plain_room(chunk.len()) => put_plain_here(pool, owner, chunk),
            owner => put_plain(pool, owner, chunk),
        };
        if others != 0 {
            failed = failed.and(put_others(pool, chunk, others));
        }
    }
    failed
}

/// Puts the plain whole pages among the addresses into the owner's cache, which has room for all. The result
/// has a bit for each other address.
#[inline(always)]
fn put_plain_here(pool: PoolPtr, owner: OwnerProof, addrs: &[DeviceAddr]) -> u64 {
    let mut others = 0;
    let put = pool.own.cache.fill(owner, addrs.len(), |space| {
        let (put, left) = owner_takes_each(pool, owner, addrs, space);
        others = left;
        put
    });
    pool.own.counts.recycle_cached.add(put as u64);
    others
}

/// The same by way of a batch: where the cache has not the room, where pages are synced, on other threads.
#[cold]
fn put_plain(pool: PoolPtr, owner: Option<OwnerProof>, addrs: &[DeviceAddr]) -> u64 {
    let mut pages = [0; Batch::MAX];
    let (taken, others) = match owner {
        Some(owner) => owner_takes_each(pool, owner, addrs, &mut pages),
        None => take_each(pool, addrs, &mut pages, |page| pool.another_takes(page)),
    };
    let mut batch = Batch::empty(pool);
    batch.extend(&pages[..taken]);
    batch.put();
    others
}

#[inline(always)]
fn owner_takes_each(
    pool: PoolPtr,
    owner: OwnerProof,
    addrs: &[DeviceAddr],
    pages: &mut [u32],
) -> (usize, u64) {
    let raw = pool.raw_pages();
    pool.owner_takes(owner, |taking| take_each(pool, addrs, pages, |page| raw.take(taking, page)))
}

/// Writes the numbers of the pages that `take` takes; says how many, and with a bit each which it refused.
#[inline(always)]
fn take_each(
    pool: PoolPtr,
    addrs: &[DeviceAddr],
    pages: &mut [u32],
    take: impl Fn(u64) -> bool,
) -> (usize, u64) {
    let (mut taken, mut others) = (0, 0);
    let geometry = pool.geometry;
    let linear = pool.mappings.first().and_then(|mapping| mapping.linear());
    for (at, &addr) in addrs.iter().enumerate() {
        let page = match linear {
            Some(linear) => Some(geometry.head_of_base_page(addr.0.wrapping_sub(linear) >> PAGE_SHIFT)),
            None => page_at(pool, addr),
        };
        match page.zip(pages.get_mut(taken)) {
            Some((page, place)) if take(page) => {
                *place = page as u32;
                taken += 1;
            }
            _ => others |= 1 << at,
        }
    }
    (taken, others)
}

/// Returns what is not a plain whole page; the first error is kept for the end.
#[cold]
fn put_others(pool: PoolPtr, addrs: &[DeviceAddr], which: u64) -> Result<(), RawError> {
    let mut failed = Ok(());
    for (_, &addr) in addrs.iter().enumerate().filter(|(at, _)| which >> at & 1 != 0) {
        failed = failed.and(from_raw(pool, addr).map(drop));
    }
    failed
}
