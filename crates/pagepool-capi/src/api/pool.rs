//! Pools: making, binding, destroying, allocating.

// UNSAFETY: functions with fixed names; the owner's part changes hands; callers' arrays are written.
#![expect(unsafe_code)]

mod dump;
mod nid;
mod shutdown;
mod stats;
mod tag;
mod wake;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use ::pagepool::{Bound, Pool, PoolRef, Shutdown};

use crate::args::pool_params::{self as params, PoolParamsC};
use crate::args::sized;
use crate::error::{Outcome, Refusal, answer, status};
use crate::handles::claim::FREE;
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::{Own, Owned, enter};
use crate::handles::slots::{self, Half, Life};
use crate::handles::thread::{self, me};
use crate::handles::token::Token;
use crate::handles::view::View;
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
            return Err(Refusal::null());
        }
        // SAFETY: the caller's struct begins with its size.
        let params = unsafe { sized::read(params, params::LEAST) }?;
        oom::expect(params.bytes() + oom::FEW)?;
        let provider = crate::api::arena::provider(Token::of(params.arena))?;
        let pages = provider.area().pages();
        // SAFETY: the caller's texts and arrays are as the fields say.
        let params = unsafe { params.to_rust() }?;
        let order = params.order;
        let token = slots::insert(Life::new(Pool::new(params, provider)?, pages, order))?;
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

fn bind(pool: Token) -> Outcome<()> {
    let view = slots::view(pool)?;
    if view.is_mine() {
        return Ok(());
    }
    if !thread::has_room() {
        oom::expect(oom::FEW)?;
    }
    thread::remember(pool)?;
    let done = slots::with_life(pool, |life| {
        if !matches!(life.half, Half::Idle(_)) {
            return Err(Refusal::fixed(
                libc::EPERM,
                c"the pool is bound to another thread, which must unbind it first",
            ));
        }
        if let Half::Idle(idle) = std::mem::replace(&mut life.half, Half::Bound) {
            install(view, idle.bind());
        }
        Ok(())
    });
    if done.is_err() {
        thread::forget(pool);
    }
    done
}

/// Makes the calling thread the owner, for the fast paths too.
fn install(view: &'static View, bound: Bound) {
    view.cache.store(bound.owner_cache().cast_mut(), Relaxed);
    // SAFETY: under the slot's lock, while nobody is the owner.
    unsafe { *own(view).bound.get() = Some(bound) };
    let _ = view.bias.compare_exchange(FREE, me(), AcqRel, Relaxed); // unless that is over for good
    view.owner.store(me(), Release);
    view.set_hint();
}

fn own(view: &View) -> &Own {
    // SAFETY: under the slot's lock, of a pool that is there, or on its owner's thread.
    unsafe { &*view.own.load(Acquire) }
}

/// Takes the owner's half back, from the owner's thread. Under the slot's lock.
fn uninstall(view: &View) -> Outcome<Bound> {
    if !view.is_mine() {
        return Err(Refusal::not_owner());
    }
    if own(view).is_in_call() {
        return Err(Refusal::fixed(
            libc::EBUSY,
            c"a callback cannot unbind or destroy the pool whose call it serves",
        ));
    }
    // SAFETY: this thread is the owner, and none of its calls is under way.
    let bound = unsafe { &mut *own(view).bound.get() }.take().ok_or(Refusal::not_owner())?;
    view.owner.store(0, Release);
    let _ = view.bias.compare_exchange(me(), FREE, AcqRel, Relaxed);
    Ok(bound)
}

/// See [`pagepool_unbind`]; the end of a thread calls it too.
pub(crate) fn unbind(pool: Token) -> Outcome<()> {
    let view = slots::view(pool)?;
    slots::with_life(pool, |life| {
        life.half = Half::Idle(uninstall(view)?.unbind());
        Ok(())
    })?;
    thread::forget(pool);
    Ok(())
}

/// A pool that was destroyed.
#[derive(Clone)]
pub(crate) struct Ending {
    pub(crate) shutdown: Arc<Shutdown>,
    /// For addresses that come home late.
    pub(crate) handle: PoolRef,
}

/// See [`pagepool_destroy`].
pub(crate) fn destroy(pool: Token) -> Outcome<Ending> {
    let view = slots::view(pool)?;
    let (idle, bound, handle) = slots::with_life(pool, |life| {
        let halves = match std::mem::replace(&mut life.half, Half::Ending) {
            Half::Idle(idle) => (Some(idle), None),
            Half::Bound => match uninstall(view) {
                Ok(bound) => (None, Some(bound)),
                Err(refusal) => {
                    life.half = Half::Bound;
                    return Err(refusal);
                }
            },
            ended => {
                life.half = ended;
                return Err(Refusal::stale());
            }
        };
        view.token.store(0, Release);
        Ok((halves.0, halves.1, life.handle.clone()))
    })?;
    thread::forget(pool);
    // With no lock held: providers and domains are foreign code.
    let shutdown = idle.map(Pool::destroy).or_else(|| bound.map(Bound::destroy)).ok_or(Refusal::stale())?;
    let shutdown = Arc::new(shutdown);
    slots::ended(pool, shutdown.clone());
    slots::reap();
    Ok(Ending { shutdown, handle })
}

// ---- Allocation ------------------------------------------------------------------------------------------------

pub(crate) const EXHAUSTED: Refusal = Refusal::fixed(
    libc::ENOMEM,
    c"no page is to be had: all that the arena may have is out (alloc_failed counts it; max_bytes, or return buffers)",
);

/// A whole page; its bytes are what the last packet left. Linux: page_pool_dev_alloc_pages.
///
/// Thread: the owner's. Ownership: the buffer is the caller's until it is returned. Errors: NULL when there is no page
/// (`alloc_failed` counts it), from another thread (-EPERM), or for a bad handle; pagepool_last_error says which. Cost: from
/// the cache, some ten instructions and no atomic operation; a refill of up to 64 pages otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_alloc_page(pool: *mut PoolHandle) -> *mut BufHandle {
    let pool = Token::of(pool);
    match slots::view_of(pool).alloc(pool) {
        Some(token) => token.handle(),
        None => alloc_page_slow(pool),
    }
}

#[cold]
#[inline(never)]
extern "C" fn alloc_page_slow(pool: Token) -> *mut BufHandle {
    handle(answer(|| enter(pool, alloc_page_owned)))
}

fn alloc_page_owned(owned: &Owned<'_>) -> Outcome<Token> {
    owned.token_for(owned.bound.alloc_page().ok_or(EXHAUSTED)?)
}

fn handle(done: Result<Token, c_int>) -> *mut BufHandle {
    done.map_or(null_mut(), Token::handle)
}

/// A fragment of `size` bytes of a page that is shared with other fragments. It begins at a multiple of `frag_align`.
/// Linux: page_pool_dev_alloc_frag.
///
/// Thread: the owner's. Ownership: as a page's; the page comes home when its last fragment has. Errors: NULL for a size of 0
/// or beyond the page (-EINVAL), when there is no page (-ENOMEM), from another thread (-EPERM), or for a bad handle.
/// Cost: some forty instructions and no atomic operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_alloc_frag(pool: *mut PoolHandle, size: usize) -> *mut BufHandle {
    handle(answer(|| {
        enter(Token::of(pool), |owned| {
            let frag = owned.bound.alloc_frag(size).ok_or_else(|| no_frag(owned, size))?;
            owned.token_for(frag)
        })
    }))
}

/// A whole page if two of `*size` do not fit one, else a fragment; `*size` becomes the true size. Where no other fragment of that
/// size would fit behind it, the rest of the page belongs to it. Linux: page_pool_dev_alloc.
///
/// Thread: the owner's. Ownership: as above. Errors: NULL as for pagepool_alloc_frag, and for a NULL `size`; `*size` is then
/// unchanged. Cost: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_alloc(pool: *mut PoolHandle, size: *mut usize) -> *mut BufHandle {
    handle(answer(|| {
        enter(Token::of(pool), |owned| {
            if size.is_null() {
                return Err(Refusal::null());
            }
            // SAFETY: not NULL, and the caller's to read.
            let wanted = unsafe { size.read() };
            let refused = || no_frag(owned, wanted);
            let buffer = owned.bound.alloc(wanted).ok_or_else(refused)?;
            let len = buffer.len();
            let token = owned.token_for(buffer)?;
            // SAFETY: not NULL, and the caller's to write.
            unsafe { size.write(len) };
            Ok(token)
        })
    }))
}

/// Why there is no fragment of that size.
#[cold]
fn no_frag(owned: &Owned<'_>, size: usize) -> Refusal {
    let page = owned.page_size();
    if (1..=page).contains(&size) {
        return EXHAUSTED;
    }
    params::range("size", size, &format!("1 to {page}, the bytes of a page of this pool"))
}

/// Up to `n` whole pages into `bufs`; says how many were had. Linux: a loop over page_pool_dev_alloc_pages.
///
/// Thread: the owner's. Ownership: the first so many are the caller's; the others of `bufs` are unchanged. Errors: 0, or
/// fewer than `n`, as for pagepool_alloc_page. Cost: as that, without the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_alloc_bulk(
    pool: *mut PoolHandle,
    bufs: *mut *mut BufHandle,
    n: usize,
) -> usize {
    let token = Token::of(pool);
    if bufs.is_null() && n > 0 {
        Refusal::null().report();
        return 0;
    }
    let view = slots::view_of(token);
    for at in 0..n {
        let buf = view.alloc(token).map_or_else(|| alloc_page_slow(token), Token::handle);
        if buf.is_null() {
            return at;
        }
        // SAFETY: the caller gave room for `n`.
        let to = unsafe { bufs.add(at) };
        // SAFETY: as above.
        unsafe { to.write(buf) };
    }
    n
}
