//! Counters and pages in flight.

// UNSAFETY: functions with fixed names; callers' places are written.
#![expect(unsafe_code)]

use std::ffi::c_int;

use crate::args::sized;
use crate::counters::StatsC;
use crate::error::{CallError, status, to_errno};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots;
use crate::handles::token::Token;

/// Reads the pool's counters into `*stats`, of which `size` is the sizeof. They are set, not added to, and exact while the
/// pool is at rest. Linux: page_pool_get_stats.
///
/// Thread: any. Errors: -EINVAL, -ESTALE. Cost: a lock; nothing to the owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_stats(pool: *mut PoolHandle, stats: *mut StatsC, size: usize) -> c_int {
    status(|| {
        let view = slots::view(Token::of(pool))?;
        let now = slots::with_life(Token::of(pool), |life| Ok(view.and_fast_paths(life.handle.stats())))?;
        // SAFETY: the caller's to write for `size` bytes, unless NULL.
        unsafe { sized::write(stats, size, &now.into()) }
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
