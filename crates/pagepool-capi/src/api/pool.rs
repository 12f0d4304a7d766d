//! Pools: making, binding and destroying them.

// UNSAFETY: functions with fixed names; callers' structs and places are read and written.
#![expect(unsafe_code)]

pub(crate) mod alloc;
mod dump;
mod nid;
mod shutdown;
mod stats;
mod tag;
mod wake;

use std::ffi::c_int;

use ::pagepool::Pool;

use crate::args::pool_params::{self as params, PoolParamsC};
use crate::args::sized;
use crate::error::{CallError, status};
use crate::handles::binding::{bind, destroy, unbind};
use crate::handles::opaque::PoolHandle;
use crate::handles::slots::{self, PoolLife};
use crate::handles::tables;
use crate::handles::token::Token;
use crate::oom;

/// Makes a pool over an arena's memory, and maps that memory in the pool's domains. No thread owns the pool
/// yet. Linux: page_pool_create.
///
/// Thread: any.
/// Ownership: `*pool` is the caller's, to be destroyed once. The pool keeps the arena and the domains.
/// Errors: -EINVAL names the parameter, its value and its range. -EIO names the domain that did not map.
///     -ENOMEM and -EMFILE name what the system refused. `*pool` is then unchanged.
/// Cost: allocates; a few microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_create(params: *const PoolParamsC, pool: *mut *mut PoolHandle) -> c_int {
    status(|| {
        if pool.is_null() {
            return Err(CallError::null());
        }
        // SAFETY: the caller's struct begins with its size.
        let params = unsafe { sized::read(params, params::LEAST) }?;
        oom::expect(params.bytes() + oom::FEW)?;
        let provider = tables::arena(Token::of(params.arena))?.provider;
        let pages = provider.area().pages();
        // SAFETY: the caller's texts and arrays are as the fields say.
        let params = unsafe { params.to_rust() }?;
        let order = params.order;
        let token = slots::insert(PoolLife::new(Pool::new(params, provider)?, pages, order))?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { pool.write(token.handle()) };
        Ok(())
    })
}

/// Ends a pool, and does not wait. Pages in its cache and rings go back to the arena now, buffers that are
/// out when they return; the last one frees the pool, on any thread. Use pagepool_destroy_watched to wait for
/// that, and if buffers are out as raw addresses, which pagepool_shutdown_put_addr then returns. After
/// pagepool_destroy nothing can return these. Their pages stay out, so that a device that still writes there
/// damages nothing, and pool and arena stay until the process ends. Linux: page_pool_destroy.
///
/// Thread: owner; any while no thread owns the pool.
/// Ownership: the handle ends. Buffers that are out stay valid.
/// Errors: -EPERM on another thread. -EBUSY in a callback of the pool's own call. -EINVAL, -ESTALE for a bad
///     handle.
/// Cost: locks; proportional to the pages in the pool.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_destroy(pool: *mut PoolHandle) -> c_int {
    status(|| destroy(Token::of(pool)).map(drop))
}

/// Makes the calling thread the owner: the thread that allocates, and whose returns go into the cache. A
/// thread that owns the pool already stays its owner. A thread that ends unbinds its pools. Linux:
/// page_pool_enable_direct_recycling.
///
/// Thread: any.
/// Errors: -EPERM if another thread owns the pool, or if the calling thread is ending. -EINVAL, -ESTALE for a
///     bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_bind(pool: *mut PoolHandle) -> c_int {
    status(|| bind(Token::of(pool)))
}

/// Gives up a pool, so that another thread can bind it. Buffers that this thread returns later take the way
/// of other threads. Linux: page_pool_disable_direct_recycling.
///
/// Thread: owner.
/// Errors: -EPERM on another thread. -EBUSY in a callback. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_unbind(pool: *mut PoolHandle) -> c_int {
    status(|| unbind(Token::of(pool)))
}
