//! How a model is run, and what must be true of its pool at the end. The models of `pagepool-skb` include this
//! file, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use pagepool::{Bound, Pool, PoolParams, PoolRef, Shutdown};
use pagepool_testing::PlainMemory;

/// Runs a model and prints what it took.
pub fn explore(name: &str, default_bound: usize, scene: impl Fn() + Send + Sync + 'static) {
    let set = std::env::var("LOOM_MAX_PREEMPTIONS").ok().and_then(|v| v.parse().ok());
    explore_to(name, set.unwrap_or(default_bound), scene);
}

/// With this bound on preemptions, whatever is set.
pub fn explore_to(name: &str, bound: usize, scene: impl Fn() + Send + Sync + 'static) {
    let (iterations, from) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let counted = iterations.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.max_branches = 20_000;
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        scene();
    });
    let (n, took) = (iterations.load(Relaxed), from.elapsed());
    println!("loom {name}: LOOM_MAX_PREEMPTIONS={bound} iterations={n} time={:.1}s", took.as_secs_f64());
}

/// A pool and what must be true of it at the end.
pub struct Scene {
    pub memory: Arc<PlainMemory>,
    pub pages: usize,
    pub handle: PoolRef,
}

/// The smallest pool: one page in the cache, refills of one page, lanes of two slots.
pub fn small(max_lanes: usize, ring_size: usize) -> PoolParams {
    PoolParams { cache_size: 1, refill: 1, lane_size: 2, max_lanes, ring_size, ..Default::default() }
}

pub fn scene(pages: usize, params: PoolParams) -> (Scene, Bound) {
    let memory = PlainMemory::new(pages, params.order).unwrap();
    let pool = Pool::new(params, memory.clone()).unwrap().bind();
    (Scene { memory, pages, handle: pool.handle() }, pool)
}

impl Scene {
    /// Every page has returned once, and the pool is gone.
    pub fn ended(&self, shutdown: &Shutdown) {
        let stats = self.handle.stats();
        assert_eq!(stats.hold, stats.release, "hold and release balance: {stats:?}");
        assert_eq!(self.memory.free(), self.pages, "the provider has every page back");
        assert!(shutdown.is_complete(), "the last return freed the pool");
        let at = self.handle.inflight();
        assert_eq!((at.total, at.cache, at.lanes, at.ring, at.frag, at.out), (0, 0, 0, 0, 0, 0));
    }

    /// Destroys a pool of which nothing is out.
    pub fn destroy(&self, pool: Bound) {
        self.ended(&pool.destroy());
    }
}
