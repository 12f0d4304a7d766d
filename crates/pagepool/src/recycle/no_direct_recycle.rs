//! A scope in which a thread does not recycle directly.

use std::marker::PhantomData;

use crate::recycle::thread;

/// While it lives, no buffer that this thread returns goes into a cache, not even of a pool bound to this
/// thread. Buffers return through lane or ring, as from other threads; `recycle_cached` does not change. For
/// code that processes packets for another thread. Linux: `xdp_set_return_frame_no_direct`.
///
/// Allocating, binding, unbinding and ending pools work as usual. Scopes nest, and may end in any order. A
/// bulk that must not recycle directly has to be flushed before the scope ends: the flush checks the owner.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, NoDirectRecycle, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let (one, two) = (pool.alloc_page(), pool.alloc_page());
/// {
///     let _scope = NoDirectRecycle::enter();
///     drop(one);
/// }
/// drop(two);
/// assert_eq!((pool.stats().recycle_ring, pool.stats().recycle_cached), (1, 1));
/// # Ok::<(), pagepool::Error>(())
/// ```
/// ```compile_fail,E0277
/// let scope = pagepool::NoDirectRecycle::enter();
/// std::thread::spawn(move || drop(scope)); // it is this thread's
/// ```
#[doc(alias = "xdp_set_return_frame_no_direct")]
#[doc(alias = "xdp_clear_return_frame_no_direct")]
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub struct NoDirectRecycle {
    /// Neither `Send` nor `Sync`: it concerns the thread that entered it.
    here: PhantomData<*mut ()>,
}

impl NoDirectRecycle {
    /// Enters the scope; dropping the returned value leaves it. If the value is leaked (`mem::forget`), the
    /// thread never recycles directly again.
    #[inline]
    pub fn enter() -> Self {
        thread::hide_token();
        Self { here: PhantomData }
    }
}

impl Drop for NoDirectRecycle {
    #[inline]
    fn drop(&mut self) {
        thread::show_token();
    }
}
