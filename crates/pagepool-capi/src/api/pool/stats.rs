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

/// Reads the pool's counters into `*stats`, `size` bytes: sizeof(*stats). It sets them and does not add. They
/// are exact while the pool is at rest. Linux: page_pool_get_stats.
///
/// Thread: any.
/// Errors: -EINVAL for NULL or a size that no struct has. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock; nothing on the owner's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_stats(pool: *mut PoolHandle, stats: *mut StatsC, size: usize) -> c_int {
    status(|| {
        let view = slots::view(Token::of(pool))?;
        let now = slots::with_life(Token::of(pool), |life| Ok(view.and_fast_paths(life.handle.stats())))?;
        // SAFETY: the caller's to write for `size` bytes, unless NULL.
        unsafe { sized::write(stats, size, &now.into()) }
    })
}

/// Gives the number of pages that joined the pool and have not left: hold - release, also across wrap-around.
/// Linux: page_pool_inflight.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_inflight(pool: *mut PoolHandle) -> i64 {
    to_errno(|| slots::with_life(Token::of(pool), |life| Ok(life.handle.inflight().total)))
        .unwrap_or_else(i64::from)
}

/// Gives the bytes lost when pages were cut into fragments: the ends of pages, and alignment.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_frag_waste(pool: *mut PoolHandle) -> i64 {
    let waste = |life: &mut slots::PoolLife| Ok(life.handle.frag_waste() as i64);
    to_errno(|| slots::with_life(Token::of(pool), waste)).unwrap_or_else(i64::from)
}

/// Where the pages of a pool are. The places add up to pagepool_inflight when the pool is at rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferLocationsC {
    /// Pages that joined the pool and have not left.
    pub total: i64,
    /// In the owner's cache.
    pub cache: u64,
    /// In the lanes of threads that returned them.
    pub lanes: u64,
    /// In the ring.
    pub ring: u64,
    /// 1 while fragments are cut from a page.
    pub frag: u64,
    /// In use, and in the deferred queue (pagepool_defer).
    pub out: u64,
}

/// Counts the pool's pages by the place where they are.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
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
