//! Counters, and the number of pages in each place.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::Inflight;

use crate::args::sized::{self, SizedOut};
use crate::counters::StatsC;
use crate::error::{number, status};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots::{PoolLife, with_life};
use crate::handles::token::Token;

// SAFETY: `repr(C)`; only words, of which the first is `size`.
unsafe impl SizedOut for StatsC {
    const LEAST: usize = std::mem::offset_of!(Self, recycle_released_refcnt) + size_of::<u64>();
}

/// Writes the pool's counters to `*stats`, as many as fit into `stats->size` bytes, which the caller sets.
/// Overwrites the old values. The counters are exact while no call on the pool is in progress. Linux:
/// page_pool_get_stats.
///
/// Thread: any.
/// Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*stats` is then unchanged. -EINVAL, -ESTALE
///     for a bad handle.
/// Cost: a lock; nothing on the owner's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_read_stats(pool: *mut PoolHandle, stats: *mut StatsC) -> c_int {
    status(|| {
        let now = with_life(Token::of(pool), |life| Ok(life.handle.stats()))?;
        // SAFETY: `stats` is NULL or the caller's to write for `stats->size` bytes.
        unsafe { sized::write(stats, &now.into()) }
    })
}

fn query(pool: *mut PoolHandle, what: impl FnOnce(&PoolLife) -> i64) -> i64 {
    number(|| with_life(Token::of(pool), |life| Ok(what(life))))
}

/// Returns the number of pages that joined the pool and have not left: `hold` - `release`, correct across
/// wrap-around. Linux: page_pool_inflight.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_inflight(pool: *mut PoolHandle) -> i64 {
    query(pool, |life| life.handle.inflight().total)
}

/// Returns how many bytes were lost when pages were cut into fragments: at the ends of pages, and by
/// alignment. The number only grows.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_frag_waste(pool: *mut PoolHandle) -> i64 {
    query(pool, |life| life.handle.frag_waste() as i64)
}

/// The number of a pool's pages in each place. The fields below `total` add up to it while no call on the
/// pool is in progress. Start from PAGEPOOL_BUFFER_LOCATIONS_INIT, or set `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferLocationsC {
    /// sizeof(struct pagepool_buffer_locations): fields can be added at the end.
    pub size: usize,
    /// Pages that joined the pool and have not left.
    pub total: i64,
    /// Pages in the owner's cache.
    pub cache: u64,
    /// Pages in the lanes.
    pub lanes: u64,
    /// Pages in the ring.
    pub ring: u64,
    /// 1 if the pool has a page from which it cuts fragments, otherwise 0.
    pub frag: u64,
    /// Pages that are out, and those in the deferred queue (pagepool_defer).
    pub out: u64,
    /// Pages whose fragments were all returned, some of them on other threads; the owner has not yet
    /// collected those.
    pub uncollected: u64,
}

// SAFETY: `repr(C)`; only words, of which the first is `size`.
unsafe impl SizedOut for BufferLocationsC {
    const LEAST: usize = std::mem::offset_of!(Self, out) + size_of::<u64>();
}

/// Writes the number of the pool's pages in each place to `*places`. The caller sets `places->size`.
///
/// Thread: any.
/// Errors: -EINVAL for NULL, or a `size` that is 0 or too small; `*places` is then unchanged. -EINVAL,
///     -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_read_buffer_locations(
    pool: *mut PoolHandle,
    places: *mut BufferLocationsC,
) -> c_int {
    status(|| {
        let Inflight { total, cache, lanes, ring, frag, out, deferred, uncollected, .. } =
            with_life(Token::of(pool), |life| Ok(life.handle.inflight()))?;
        let (size, out) = (size_of::<BufferLocationsC>(), out + deferred);
        let now = BufferLocationsC { size, total, cache, lanes, ring, frag, out, uncollected };
        // SAFETY: `places` is NULL or the caller's to write for `places->size` bytes.
        unsafe { sized::write(places, &now) }
    })
}
