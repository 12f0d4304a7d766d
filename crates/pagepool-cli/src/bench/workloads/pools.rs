//! What workloads share: arenas, pools, the loops over their buffers, and threads that keep lanes.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use pagepool::{Arena, ArenaParams, Bound, PAGE_SIZE, PageBuf, Pool, PoolParams, Provider};

use crate::bench::measure::counted::Counted;
use crate::bench::measure::workload::Ready;
use crate::report::error::error_chain;

/// An arena of so many base pages, plain 4 KiB memory, committed as it is used.
pub fn arena(pages: usize) -> Result<Arc<dyn Provider>, String> {
    arena_with(pages, ArenaParams::default())
}

/// An arena of so many base pages with these parameters.
pub fn arena_with(pages: usize, params: ArenaParams) -> Result<Arc<dyn Provider>, String> {
    let params = ArenaParams { max_bytes: (pages * PAGE_SIZE) as u64, ..params };
    Ok(Arena::new(params).map_err(|error| error_chain(&error))?)
}

/// Base pages of the arenas that do not say otherwise: 64 MiB.
pub const PAGES: usize = 16 * 1024;

/// A pool of an arena of its own, bound to this thread.
pub fn bound(params: PoolParams) -> Result<Bound, String> {
    over(params, arena(PAGES)?)
}

/// A pool of this arena, bound to this thread.
pub fn over(params: PoolParams, arena: Arc<dyn Provider>) -> Result<Bound, String> {
    Pool::new(params, arena).map(Pool::bind).map_err(|error| error_chain(&error))
}

/// A workload on one core over a pool of its own.
pub fn one_core(params: PoolParams, run: impl FnMut(&Bound, usize) + 'static) -> Result<Ready, String> {
    Ok(one_core_over(bound(params)?, run))
}

/// A workload on one core over this pool, which ends after what `run` holds.
pub fn one_core_over(pool: Bound, mut run: impl FnMut(&Bound, usize) + 'static) -> Ready {
    let counters = counters_of(&pool);
    Ready::one_core(move |n| run(&pool, n)).counting(counters)
}

/// Allocates a buffer and drops it, `n` times.
#[inline(always)]
pub fn one_by_one<B>(n: usize, alloc: impl Fn() -> B) {
    for _ in 0..n {
        let buf = alloc();
        // As in the peers' harness: memory may be looked at here, the handle stays in registers.
        compiler_fence(Ordering::SeqCst);
        drop(buf);
    }
}

/// Allocates `size` buffers and lets go of them all, until there were `n`.
#[inline(always)]
pub fn in_bursts<B>(
    n: usize,
    size: usize,
    burst: &mut Vec<B>,
    alloc: impl Fn() -> B,
    let_go: impl Fn(&mut Vec<B>),
) {
    for _ in 0..n / size {
        burst.extend((0..size).map(|_| alloc()));
        black_box(&*burst);
        let_go(burst);
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

/// Threads that returned buffers once, and do nothing more: each keeps its lanes until this is dropped.
pub struct Returners(Vec<(Sender<()>, JoinHandle<()>)>);

impl Returners {
    /// A thread for each of these, which has returned them. They return one after the other.
    pub fn of(buffers: impl IntoIterator<Item = Vec<PageBuf>>) -> Result<Self, String> {
        let mut threads = Vec::new();
        for buffers in buffers {
            let (end, ended) = channel();
            let (done, returned) = channel();
            let thread = thread::spawn(move || {
                drop(buffers);
                let _ = done.send(());
                let _ = ended.recv(); // fails once the sender is dropped
            });
            returned.recv().map_err(|_| "a thread that returns buffers ended early")?;
            threads.push((end, thread));
        }
        Ok(Self(threads))
    }
}

impl Drop for Returners {
    fn drop(&mut self) {
        for (end, thread) in self.0.drain(..) {
            drop(end);
            let _ = thread.join();
        }
    }
}
