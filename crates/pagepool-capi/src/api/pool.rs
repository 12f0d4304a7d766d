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

/// Makes a pool over an arena's memory and maps that in the pool's domains. The pool is bound to no thread yet.
/// Linux: page_pool_create.
///
/// Thread: any. Ownership: `*pool` is the caller's, to be destroyed once; the pool keeps the arena and the domains.
/// Errors: -EINVAL names the parameter, its value and its range; -EIO the domain that did not map; -ENOMEM, -EMFILE what
/// the system refused; `*pool` is then unchanged. Cost: allocates; a few microseconds.
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

/// Ends the pool; never waits. What is in its cache and rings goes back to the arena now, buffers that are out when they
/// come home, and the last one frees the pool on whichever thread it is returned. To watch that: pagepool_destroy_watched.
/// A buffer that is out as a raw address has no handle to come home by once the pool's is over: where there may be one, end
/// the pool with pagepool_destroy_watched, and bring it to pagepool_shutdown_put_addr. After this call its page stays out, so
/// that a device that still writes there damages nothing, and pool and arena are kept for it until the process ends.
/// Linux: page_pool_destroy.
///
/// Thread: the owner's while the pool is bound, any otherwise. Ownership: the handle is over; buffers that are out stay
/// valid. Errors: -EPERM from another thread than the owner's; -EBUSY from a callback that the pool's own call made;
/// -EINVAL, -ESTALE. Cost: takes locks; in proportion to the pages in the pool.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_destroy(pool: *mut PoolHandle) -> c_int {
    status(|| destroy(Token::of(pool)).map(drop))
}

/// Makes the calling thread the owner: the one that allocates, and whose returns go into the cache. A pool that is bound
/// to this thread already stays so. A thread that ends unbinds its pools. Linux: page_pool_enable_direct_recycling.
///
/// Thread: any. Errors: -EPERM while it is bound to another thread, or in a thread that is ending; -EINVAL, -ESTALE.
/// Cost: takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_bind(pool: *mut PoolHandle) -> c_int {
    status(|| bind(Token::of(pool)))
}

/// Gives the pool up, to be bound by another thread. Buffers that this thread returns afterwards go the way of other
/// threads. Linux: page_pool_disable_direct_recycling.
///
/// Thread: the owner's. Errors: -EPERM from any other; -EBUSY from a callback; -EINVAL, -ESTALE. Cost: takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_unbind(pool: *mut PoolHandle) -> c_int {
    status(|| unbind(Token::of(pool)))
}
