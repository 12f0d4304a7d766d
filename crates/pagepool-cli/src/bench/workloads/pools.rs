//! The arenas and pools that workloads run on.

use std::rc::Rc;
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, PAGE_SIZE, PageBuf, Pool, PoolParams, Provider};

use crate::bench::measure::counted::Counted;
use crate::report::error::error_chain;

/// An arena of so many base pages, plain 4 KiB memory, committed as it is used.
pub fn arena(pages: usize) -> Result<Arc<dyn Provider>, String> {
    let params = ArenaParams { max_bytes: (pages * PAGE_SIZE) as u64, ..ArenaParams::default() };
    match Arena::new(params) {
        Ok(arena) => Ok(arena),
        Err(error) => Err(error_chain(&error)),
    }
}

/// Base pages of the arenas that do not say otherwise: 64 MiB.
pub const PAGES: usize = 16 * 1024;

/// A pool of an arena of its own, bound to this thread.
pub fn bound(params: PoolParams) -> Result<Rc<Bound>, String> {
    over(params, arena(PAGES)?)
}

/// A pool of this arena, bound to this thread.
pub fn over(params: PoolParams, arena: Arc<dyn Provider>) -> Result<Rc<Bound>, String> {
    match Pool::new(params, arena) {
        Ok(pool) => Ok(Rc::new(pool.bind())),
        Err(error) => Err(error_chain(&error)),
    }
}

/// The packet layout of a driver with XDP headroom: 256 bytes before, 1514 of packet, 320 after.
pub fn packets() -> PoolParams {
    PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..PoolParams::default() }
}

/// Reads the counters of a pool, for as long as anyone wants.
pub fn counters_of(pool: &Bound) -> impl Fn() -> Counted + 'static {
    let pool = pool.handle();
    move || Counted::from_fields(pool.stats().fields())
}

/// A page. The arenas here are larger than what any workload holds, so that none can fail.
#[inline(always)]
pub fn page(pool: &Bound) -> PageBuf {
    pool.alloc_page().expect("the arena has more pages than the workload holds")
}

/// Makes the pool hold this many idle pages: in its cache, and the rest in its ring. Their memory is touched,
/// because which of them a warm-up reaches depends on how the two cores happen to run.
pub fn fill(pool: &Bound, pages: usize) {
    let mut held: Vec<PageBuf> = (0..pages).map(|_| page(pool)).collect();
    for buf in &mut held {
        buf.bytes_mut()
            .into_iter()
            .flat_map(|bytes| bytes.chunks_mut(PAGE_SIZE))
            .for_each(|page| page[0] = 1);
    }
    drop(held);
}
