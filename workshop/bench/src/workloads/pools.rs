//! What workloads share: arenas, pools, loops over buffers, and threads that occupy lanes.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use crate::measure::counted::Counted;
use crate::measure::workload::Ready;
use pagepool::{Arena, ArenaParams, Bound, PAGE_SIZE, PageBuf, Pool, PoolParams, Provider};
use pagepool_cli::report::error_chain;

/// Base pages: plain 4 KiB memory, committed as it is used.
pub fn arena(pages: usize) -> Result<Arc<dyn Provider>, String> {
    arena_with(pages, ArenaParams::default())
}

pub fn arena_with(pages: usize, params: ArenaParams) -> Result<Arc<dyn Provider>, String> {
    let params = ArenaParams { max_bytes: (pages * PAGE_SIZE) as u64, ..params };
    Ok(Arena::new(params).map_err(|error| error_chain(&error))?)
}

/// The default: 64 MiB.
pub const PAGES: usize = 16 * 1024;

/// With its own arena.
pub fn bound(params: PoolParams) -> Result<Bound, String> {
    over(params, arena(PAGES)?)
}

pub fn over(params: PoolParams, arena: Arc<dyn Provider>) -> Result<Bound, String> {
    Pool::new(params, arena).map(Pool::bind).map_err(|error| error_chain(&error))
}

/// With its own pool.
pub fn one_core(params: PoolParams, run: impl FnMut(&Bound, usize) + 'static) -> Result<Ready, String> {
    Ok(one_core_over(bound(params)?, run))
}

/// The pool ends after what `run` holds.
pub fn one_core_over(pool: Bound, mut run: impl FnMut(&Bound, usize) + 'static) -> Ready {
    let counters = counters_of(&pool);
    Ready::one_core(move |n| run(&pool, n)).counting(counters)
}

#[inline(always)]
pub fn one_by_one<B>(n: usize, alloc: impl Fn() -> B) {
    for _ in 0..n {
        let buf = alloc();
        // As in the peers' harness: memory may be read here, the handle stays in registers.
        compiler_fence(Ordering::SeqCst);
        drop(buf);
    }
}

/// Allocates `size` buffers and frees them all with `let_go`, until `n` were allocated.
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

/// The layout of a driver with XDP headroom: 256 bytes, a packet of 1514, 320 bytes.
pub fn packets() -> PoolParams {
    PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..PoolParams::default() }
}

/// The reader may outlive the pool's binding.
pub fn counters_of(pool: &Bound) -> impl Fn() -> Counted + 'static {
    let pool = pool.handle();
    move || Counted::from_fields(pool.stats().fields())
}

/// Cannot fail: the arenas here are larger than any workload needs.
#[inline(always)]
pub fn page(pool: &Bound) -> PageBuf {
    pool.alloc_page().expect("the arena has more pages than the workload holds")
}

/// Gives the pool idle pages, in its cache and ring. Touches their memory: which pages a warm-up reaches
/// depends on the timing of the two cores.
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

/// Threads that returned buffers once and then idle: each occupies its lanes until this is dropped.
pub struct Returners(Vec<(Sender<()>, JoinHandle<()>)>);

impl Returners {
    /// Each thread returns one set of buffers, one thread after another.
    pub fn of(buffers: impl IntoIterator<Item = Vec<PageBuf>>) -> Result<Self, String> {
        let mut threads = Vec::new();
        for buffers in buffers {
            let (end, ended) = channel();
            let (done, returned) = channel();
            let thread = thread::spawn(move || {
                drop(buffers);
                let _ = done.send(());
                let _ = ended.recv(); // fails when the sender is dropped
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
