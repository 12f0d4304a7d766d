//! Pools: creation, ownership and destruction.

// UNSAFETY: exported functions; reads and writes through callers' pointers.
#![expect(unsafe_code)]

pub(crate) mod alloc;
mod dump;
mod nid;
mod open;
mod shrink;
mod shutdown;
mod stats;
pub(crate) mod tag;
mod wake;

use std::ffi::c_int;

use ::pagepool::Pool;

use crate::args::out::store_handle;
use crate::args::pool_params::PoolParamsC;
use crate::args::sized;
use crate::error::status;
use crate::handles::binding::{bind, destroy, disown, unbind};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots;
use crate::handles::tables::ARENAS;
use crate::handles::token::Token;
use crate::oom;

/// Creates a pool over the memory of an arena, and maps that memory in the pool's domains. No thread owns the
/// pool yet. Linux: page_pool_create.
///
/// Thread: any.
/// Ownership: release `*pool` with pagepool_destroy or pagepool_destroy_watched. The pool keeps the arena and
///     the domains: their handles may be released at once.
/// Errors: -EINVAL names the parameter, its value and its range. -EIO names the domain that refused to map.
///     -ENOMEM and -EMFILE name what the system refused. -EBUSY for the 4097th pool. -ENOSPC if all pools
///     together have 268,435,456 pages and fragments, the limit. `*pool` is then unchanged.
/// Cost: allocates; a few microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_create(params: *const PoolParamsC, pool: *mut *mut PoolHandle) -> c_int {
    let make = || {
        // SAFETY: the caller's struct begins with its size.
        let params = unsafe { sized::read::<PoolParamsC>(params) }?;
        let provider = ARENAS.get(Token::of(params.arena))?.provider;
        let pages = provider.area().pages();
        oom::expect(params.bytes(pages as usize) + oom::FEW)?;
        let no_owner = params.no_owner()?;
        // SAFETY: the caller's texts and arrays are as the fields say.
        let params = unsafe { params.to_rust() }?;
        let order = params.order;
        let pool = slots::insert(pages, order, |lives| Ok(Pool::with_lives(params, provider, lives)?))?;
        if no_owner {
            disown(pool)?;
        }
        Ok(pool)
    };
    // SAFETY: `pool` is NULL or the caller's to write.
    unsafe { store_handle(pool, make) }
}

/// Destroys a pool without waiting. Pages in its cache, lanes and ring return to the arena now. Buffers that
/// are out stay valid; the return of the last one frees the pool, on any thread. A buffer that is out as a
/// device address (pagepool_buf_into_raw, pagepool_alloc_addr_bulk) can no longer be returned: its page stays
/// out, so a device that still writes there damages nothing, but pool and arena then stay until the process
/// ends. Use pagepool_destroy_watched to wait for buffers, or to return device addresses. Linux:
/// page_pool_destroy.
///
/// Thread: owner; any while no thread owns the pool, or if it was made with `no_owner`.
/// Ownership: the handle ends.
/// Errors: -EPERM on another thread. -EBUSY in a callback that a call on this pool makes. -EINVAL, -ESTALE
///     for a bad handle.
/// Cost: locks; proportional to the pages in the pool.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_destroy(pool: *mut PoolHandle) -> c_int {
    status(|| destroy(Token::of(pool)))
}

/// Makes the calling thread the owner of the pool. The owner allocates, and its returns go into the cache.
/// The call has no effect if the thread owns the pool already. When a thread ends, the library unbinds its
/// pools. Linux: page_pool_enable_direct_recycling.
///
/// Thread: any.
/// Errors: -EPERM if another thread owns the pool, if it was made with `no_owner`, or if the calling thread
///     is ending. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_bind(pool: *mut PoolHandle) -> c_int {
    status(|| bind(Token::of(pool)))
}

/// Ends the ownership of the calling thread, so that another thread can bind the pool. From now on this
/// thread returns buffers as any other thread does. Linux: page_pool_disable_direct_recycling.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EBUSY in a callback that a call on this pool makes. -EINVAL, -ESTALE
///     for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_unbind(pool: *mut PoolHandle) -> c_int {
    status(|| unbind(Token::of(pool)))
}
