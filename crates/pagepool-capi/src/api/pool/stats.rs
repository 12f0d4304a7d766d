//! Counters and pages in flight.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::Inflight;

use crate::args::out::store;
use crate::args::sized;
use crate::counters::StatsC;
use crate::error::{number, status};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots::{self, PoolLife, with_life};
use crate::handles::token::Token;

/// Writes the pool's counters to `*stats`; `size` is sizeof(*stats). It sets them, and does not add. They are
/// exact while no call about the pool is in progress. Linux: page_pool_get_stats.
///
/// Thread: any.
/// Errors: -EINVAL for NULL, or a size that the struct never had. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock; nothing on the owner's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_stats(pool: *mut PoolHandle, stats: *mut StatsC, size: usize) -> c_int {
    status(|| {
        let view = slots::view(Token::of(pool))?;
        let now = with_life(Token::of(pool), |life| Ok(view.and_fast_paths(life.handle.stats())))?;
        // SAFETY: `stats` is NULL or the caller's to write for `size` bytes.
        unsafe { sized::write(stats, size, &now.into()) }
    })
}

fn ask(pool: *mut PoolHandle, what: impl FnOnce(&PoolLife) -> i64) -> i64 {
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
    ask(pool, |life| life.handle.inflight().total)
}

/// Returns how many bytes were lost when pages were cut into fragments: ends of pages, and alignment. The
/// number only grows.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_frag_waste(pool: *mut PoolHandle) -> i64 {
    ask(pool, |life| life.handle.frag_waste() as i64)
}

/// How many pages of a pool are where. The fields below `total` add up to it while no call about the pool is
/// in progress.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferLocationsC {
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
}

/// Writes to `*places` how many pages of the pool are where.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle. -EINVAL for NULL.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buffer_locations(
    pool: *mut PoolHandle,
    places: *mut BufferLocationsC,
) -> c_int {
    let locations = || {
        let Inflight { total, cache, lanes, ring, frag, out, deferred, .. } =
            with_life(Token::of(pool), |life| Ok(life.handle.inflight()))?;
        Ok(BufferLocationsC { total, cache, lanes, ring, frag, out: out + deferred })
    };
    // SAFETY: `places` is NULL or the caller's to write.
    unsafe { store(places, locations) }
}
