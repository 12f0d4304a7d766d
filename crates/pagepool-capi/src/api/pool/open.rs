//! A pool with its own memory, in one call.
//!
//! What   an arena with all its memory committed, a domain in which device addresses are offsets in it, and a
//!        pool over both that the calling thread owns. Arena and domain have no handle: the pool frees them.
//! Who    any thread.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ::pagepool::{Arena, ArenaParams, Error, OffsetDomain, OnMissingHuge, Pool, PoolParams, Provider};

use crate::args::arena_params::{
    PAGEPOOL_BACKING_ANONYMOUS_4K, PAGEPOOL_BACKING_HUGE_1G, PAGEPOOL_HUGE_OR_FAIL, backing,
};
use crate::args::out::store_handle;
use crate::args::pool_params::PoolParamsC;
use crate::args::range::out_of_range;
use crate::args::sized;
use crate::c_words;
use crate::error::{CallError, CallResult, value_or};
use crate::handles::binding::{bind, destroy};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots;
use crate::handles::token::Token;
use crate::oom;

/// Creates a pool with `bytes` bytes of its own memory, and makes the calling thread its owner. Device
/// addresses are offsets in that memory, as in an AF_XDP UMEM; pagepool_base has its address. All other
/// parameters are those of PAGEPOOL_PARAMS_INIT. For several pools over one memory, other domains or other
/// parameters use pagepool_arena_create and pagepool_create.
///
/// `bytes` is a multiple of 4096, or of the huge page size for the hugetlb kinds. `kind` is 0 for the
/// default, or PAGEPOOL_BACKING_ANONYMOUS_4K, _TRANSPARENT_HUGE, _HUGE_2M or _HUGE_1G. If no huge pages are
/// available, smaller pages are taken; `| PAGEPOOL_HUGE_OR_FAIL` fails instead.
///
/// Thread: any.
/// Ownership: release `*pool` with pagepool_destroy or pagepool_destroy_watched. The memory is the pool's: it
///     is returned to the system when the pool is freed.
/// Errors: -EINVAL names the argument, its value and its range. -EPERM if the calling thread is ending.
///     Otherwise as pagepool_arena_create and pagepool_create. `*pool` is then unchanged.
/// Cost: a few system calls; the time to clear the memory for the hugetlb kinds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_open(bytes: u64, kind: u32, pool: *mut *mut PoolHandle) -> c_int {
    // SAFETY: `pool` is NULL or the caller's to write.
    unsafe { store_handle(pool, || bound(create(arena(bytes, kind)?)?)) }
}

fn arena(bytes: u64, kind: u32) -> CallResult<Arc<Arena>> {
    oom::expect_arena(bytes)?;
    let named = |error: Error| {
        CallError::formatted(error.errno(), c_words::of_error(error).replace("max_bytes", "bytes"))
    };
    Arena::new(arena_params(bytes, kind)?).map_err(named)
}

fn arena_params(bytes: u64, kind: u32) -> CallResult<ArenaParams> {
    let (kind_of_memory, or_fail) = (kind & !PAGEPOOL_HUGE_OR_FAIL, kind & PAGEPOOL_HUGE_OR_FAIL != 0);
    if kind_of_memory > PAGEPOOL_BACKING_HUGE_1G {
        return Err(out_of_range("kind", kind, "PAGEPOOL_BACKING_DEFAULT to _HUGE_1G, 0 to 4"));
    }
    if or_fail && kind_of_memory == PAGEPOOL_BACKING_ANONYMOUS_4K {
        return Err(out_of_range("kind", kind, "without PAGEPOOL_HUGE_OR_FAIL for pages of 4 KiB"));
    }
    Ok(ArenaParams {
        max_bytes: bytes,
        backing: backing(kind_of_memory)?,
        on_missing_huge: if or_fail { OnMissingHuge::Fail } else { OnMissingHuge::Fallback },
        commit_all: true,
        ..Default::default()
    })
}

fn create(arena: Arc<Arena>) -> CallResult<Token> {
    oom::expect(sized::zeroes::<PoolParamsC>().bytes(0) + oom::FEW)?;
    let offsets = Arc::new(OffsetDomain::new("offsets"));
    let params = PoolParams { domains: vec![offsets], ..Default::default() };
    let (pages, order) = (arena.area().pages(), params.order);
    slots::insert(pages, order, |lives| Ok(Pool::with_lives(params, arena, lives)?))
}

/// Binds the pool to the calling thread; destroys it if that fails.
fn bound(pool: Token) -> CallResult<Token> {
    bind(pool).inspect_err(|_| {
        let _ = destroy(pool); // no other thread has its token: it exists and has no owner
    })?;
    Ok(pool)
}

/// Returns the address of the first byte of the pool's memory, and stores its length in `*bytes` unless
/// `bytes` is NULL: for a UMEM, or to read the packet at offset `addr`. A pool over an arena has the arena's
/// memory. NULL for device memory (-EOPNOTSUPP) or a bad handle (-EINVAL, -ESTALE); `*bytes` is then
/// unchanged.
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_base(pool: *mut PoolHandle, bytes: *mut u64) -> *mut c_void {
    let base = || {
        let memory = slots::with_life(Token::of(pool), |life| {
            let area = life.handle.area();
            Ok((area.base().ok_or(CallError::UNREADABLE)?, area.len_bytes()))
        });
        let (base, len) = memory?;
        if !bytes.is_null() {
            // SAFETY: it is not NULL, so it is the caller's to write.
            unsafe { bytes.write(len) };
        }
        Ok(base)
    };
    std::ptr::with_exposed_provenance_mut(value_or(0, base))
}
