//! Counters and pages in flight.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::Stats;

use crate::error::{CallError, status, to_errno};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots;
use crate::handles::token::Token;

macro_rules! stats {
    ($($name:ident,)+) => {
        impl From<Stats> for StatsC {
            fn from(stats: Stats) -> Self {
                Self { $($name: stats.$name),+ }
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

/// What a pool has done so far, under Linux's names (struct page_pool_alloc_stats, page_pool_recycle_stats).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StatsC {
    /// Pages handed out from the cache, and fragment pages reused in place.
    pub alloc_fast: u64,
    /// Slow-path allocations that the arena served: one for up to `refill` pages.
    pub alloc_slow: u64,
    /// Pages of order above 0 that the arena gave.
    pub alloc_slow_high_order: u64,
    /// Times the cache was empty and neither lanes nor ring had a page.
    pub alloc_empty: u64,
    /// Refills from lanes and ring that brought at least one page: one per refill.
    pub alloc_refill: u64,
    /// Pages let go because they were on the wrong node: at most one per allocation.
    pub alloc_waive: u64,
    /// Allocations that gave nothing. Linux has no such counter.
    pub alloc_failed: u64,
    /// Pages returned into the cache by their owner, and fragment pages reused in place.
    pub recycle_cached: u64,
    /// Pages that found the cache full; each is counted again under recycle_ring or recycle_ring_full.
    pub recycle_cache_full: u64,
    /// Pages returned into the ring or a lane.
    pub recycle_ring: u64,
    /// Pages that found ring and lane full and left the pool.
    pub recycle_ring_full: u64,
    /// Pages that came home while somebody held them, or from the emergency reserve, and left the pool.
    pub recycle_released_refcnt: u64,
    /// Pages that ever joined the pool.
    pub hold: u64,
    /// Pages that ever left it.
    pub release: u64,
}

// One name per field above; a test holds both to Rust's.
stats! {
    alloc_fast, alloc_slow, alloc_slow_high_order, alloc_empty, alloc_refill, alloc_waive, alloc_failed,
    recycle_cached, recycle_cache_full, recycle_ring, recycle_ring_full, recycle_released_refcnt, hold, release,
}

/// Reads the pool's counters; they are set, not added to. Exact while the pool is at rest. Linux: page_pool_get_stats.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock; nothing to the owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_stats(pool: *mut PoolHandle, stats: *mut StatsC) -> c_int {
    status(|| {
        if stats.is_null() {
            return Err(CallError::null());
        }
        let view = slots::view(Token::of(pool))?;
        let now = slots::with_life(Token::of(pool), |life| Ok(view.and_fast_paths(life.handle.stats())))?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { stats.write(now.into()) };
        Ok(())
    })
}

/// Pages that joined the pool and have not left: hold - release, right across wrap-around. Linux: page_pool_inflight.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_inflight(pool: *mut PoolHandle) -> i64 {
    to_errno(|| slots::with_life(Token::of(pool), |life| Ok(life.handle.inflight().total)))
        .unwrap_or_else(i64::from)
}

/// Bytes that cutting pages up cost: what was left over at their ends, and what alignment took.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_frag_waste(pool: *mut PoolHandle) -> i64 {
    let waste = |life: &mut slots::PoolLife| Ok(life.handle.frag_waste() as i64);
    to_errno(|| slots::with_life(Token::of(pool), waste)).unwrap_or_else(i64::from)
}

/// Where a pool's pages are. The sum is pagepool_inflight when the pool is at rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferLocationsC {
    /// Pages that joined and have not left.
    pub total: i64,
    /// In the owner's cache.
    pub cache: u64,
    /// In lanes, on their way home.
    pub lanes: u64,
    /// In the ring.
    pub ring: u64,
    /// The page that fragments are being cut from.
    pub frag: u64,
    /// With the program, and waiting (pagepool_defer).
    pub out: u64,
}

/// Says where the pool's pages are.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_buffer_locations(
    pool: *mut PoolHandle,
    places: *mut BufferLocationsC,
) -> c_int {
    status(|| {
        if places.is_null() {
            return Err(CallError::null());
        }
        let at = slots::with_life(Token::of(pool), |life| Ok(life.handle.inflight()))?;
        let now = BufferLocationsC {
            total: at.total,
            cache: at.cache,
            lanes: at.lanes,
            ring: at.ring,
            frag: at.frag,
            out: at.out + at.deferred,
        };
        // SAFETY: not NULL, and the caller's to write.
        unsafe { places.write(now) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_has_the_counters_that_rust_has() {
        let sorted = |names: &[&'static str]| {
            let mut names = names.to_vec();
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(NAMES), sorted(Stats::NAMES));
        assert_eq!(size_of::<StatsC>(), 8 * NAMES.len());
    }
}
