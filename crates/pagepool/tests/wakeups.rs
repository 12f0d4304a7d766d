//! A pool with `wakeup` whose allocation failed is woken by whatever brings a page: each way that a page can
//! come at the worst moment is a test.
#![allow(clippy::unwrap_used)]
// UNSAFETY: a provider of this test passes another one's pages on; one call of poll(2).
#![expect(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pagepool::{
    Area, Arena, ArenaParams, Bound, DeviceAddr, DmaDomain, DomainId, NodeId, PageBuf, PageIdx, Pool,
    PoolParams, Provider, Region, Topology,
};
use pagepool_testing::PlainMemory;

type Hook = Box<dyn FnOnce() + Send>;

/// Another provider, and something that happens once, within a reservation, before that provider is asked.
struct Interrupted {
    inner: Arc<dyn Provider>,
    hook: Mutex<Option<Hook>>,
}

impl Interrupted {
    fn new(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { inner, hook: Mutex::new(None) })
    }

    /// The next reservation finds that another thread did this after the pool's look at its lanes.
    fn on_the_next_reservation(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

// SAFETY: every promise is the inner provider's.
unsafe impl Provider for Interrupted {
    fn area(&self) -> &Arc<Area> {
        self.inner.area()
    }

    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        let got = self.inner.reserve(order, node, out);
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            thread::spawn(hook).join().unwrap();
        }
        got
    }

    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        // SAFETY: the caller keeps the same promises.
        unsafe { self.inner.release(order, pages) };
    }

    fn available(&self, order: u8) -> usize {
        self.inner.available(order)
    }

    fn current_node(&self) -> NodeId {
        self.inner.current_node()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// Whether the pool's descriptor says that the sleep is over.
fn is_woken(pool: &Bound) -> bool {
    let mut fd = libc::pollfd { fd: pool.wake_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives across the call.
    unsafe { libc::poll(&mut fd, 1, 0) == 1 }
}

fn drain(pool: &Bound) -> Vec<PageBuf> {
    std::iter::from_fn(|| pool.alloc_page()).collect()
}

/// Asks for a page; a failure with a page there must not end in a sleep.
fn alloc_or_wake(pool: &Bound) -> Option<PageBuf> {
    pool.alloc_page().or_else(|| {
        assert!(is_woken(pool), "the allocation failed, a page is there, and nothing wakes the owner");
        pool.acknowledge_wake();
        pool.alloc_page()
    })
}

#[test]
fn a_return_during_a_reservation_below_low_water() {
    for (low_water, max_lanes) in [(0, 4), (1, 4), (1, 0)] {
        let provider = Interrupted::new(PlainMemory::new(2, 0).unwrap());
        let params = PoolParams { wakeup: true, low_water, max_lanes, ..Default::default() };
        let pool = Pool::new(params, provider.clone()).unwrap().bind();
        let (first, _second) = (pool.alloc_page().unwrap(), pool.alloc_page().unwrap());
        provider.on_the_next_reservation(|| drop(first));
        assert!(alloc_or_wake(&pool).is_some(), "low_water {low_water}, {max_lanes} lanes");
    }
}

#[test]
fn a_return_of_another_nodes_page_during_a_reservation() {
    let here = Arc::new(AtomicU8::new(0));
    let topology = Topology::pretend_halves(2).with_current_node(here.clone());
    let params = ArenaParams { max_bytes: 4 << 20, topology, ..Default::default() };
    let provider = Interrupted::new(Arena::new(params).unwrap());
    let pool = Pool::new(PoolParams { wakeup: true, ..Default::default() }, provider.clone()).unwrap().bind();
    let mut taken: Vec<_> = (0..1024).map(|_| pool.alloc_page().unwrap()).collect();
    let far = taken.iter().position(|buffer| provider.area().node_of(buffer.page()) == NodeId(1)).unwrap();
    let far = taken.swap_remove(far);
    provider.on_the_next_reservation(|| drop(far));
    assert!(alloc_or_wake(&pool).is_some(), "the provider has the page that the pool let go");
}

/// Memory that another pool of the same provider has taken, and two pools over it, of which the second
/// starved.
fn starved() -> (Bound, Vec<PageBuf>, Bound) {
    let arena = Arena::new(ArenaParams { max_bytes: 64 << 12, ..Default::default() }).unwrap();
    let rich = Pool::new(PoolParams::default(), arena.clone()).unwrap().bind();
    let taken = drain(&rich);
    assert_eq!(taken.len(), 64);
    let poor = Pool::new(PoolParams { wakeup: true, ..Default::default() }, arena).unwrap().bind();
    assert!(poor.alloc_page().is_none() && !is_woken(&poor));
    (rich, taken, poor)
}

#[test]
fn another_pool_of_the_provider_ends() {
    let (rich, taken, poor) = starved();
    drop(taken); // into the cache of the other pool
    assert!(!is_woken(&poor), "the other pool still has them");
    let end = rich.destroy();
    assert!(end.wait(Duration::from_secs(60)), "{}", end.report());
    assert!(is_woken(&poor), "the arena has 64 pages");
    assert!(poor.alloc_page().is_some());
}

#[test]
fn another_pool_of_the_provider_releases_a_page() {
    let (rich, mut taken, poor) = starved();
    rich.update_nid(None).unwrap();
    let mut page = taken.pop().unwrap();
    let raw = page.page_ref();
    drop(page); // leaves the pool, and waits for the reference
    assert!(!is_woken(&poor));
    drop(raw);
    assert!(is_woken(&poor), "the arena has a page");
    assert!(poor.alloc_page().is_some());
}

#[test]
fn the_last_buffer_of_an_ended_pool_wakes_another_pool() {
    let (rich, mut taken, poor) = starved();
    let last = taken.pop().unwrap();
    drop(taken);
    let end = rich.destroy();
    assert!(is_woken(&poor));
    poor.acknowledge_wake();
    let mut rest = drain(&poor);
    assert_eq!(rest.len(), 63);
    assert!(!is_woken(&poor), "all that came was taken");
    thread::spawn(move || drop(last)).join().unwrap();
    assert!(is_woken(&poor), "the arena has a page");
    rest.extend(poor.alloc_page());
    assert_eq!(rest.len(), 64);
    assert!(end.wait(Duration::from_secs(60)), "{}", end.report());
}

/// Descriptors of this process that are event counters.
fn event_descriptors() -> usize {
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().contains("eventfd")).count()
}

#[test]
fn pools_that_ended_keep_no_descriptor_for_an_idle_returner() {
    let (to_returner, work) = std::sync::mpsc::channel::<PageBuf>();
    let (done, is_done) = std::sync::mpsc::channel();
    let returner = thread::spawn(move || {
        work.into_iter().for_each(|page| {
            drop(page);
            done.send(()).unwrap();
        })
    });
    let memory = PlainMemory::new(64, 0).unwrap();
    for _ in 0..500 {
        let pool =
            Pool::new(PoolParams { wakeup: true, ..Default::default() }, memory.clone()).unwrap().bind();
        to_returner.send(pool.alloc_page().unwrap()).unwrap();
        is_done.recv().unwrap();
        let end = pool.destroy();
        assert!(end.is_complete(), "{}", end.report());
    }
    // Other tests of this program have a few.
    assert!(event_descriptors() < 250, "{} descriptors", event_descriptors());
    drop(to_returner);
    returner.join().unwrap();
}

#[test]
fn a_provider_page_wakes_after_a_second_look_found_one() {
    let memory = PlainMemory::new(3, 0).unwrap();
    let other = Pool::new(PoolParams { refill: 1, ..Default::default() }, memory.clone()).unwrap().bind();
    let _third = other.alloc_page().unwrap();
    let provider = Interrupted::new(memory);
    let params = PoolParams { wakeup: true, low_water: 1, refill: 1, ..Default::default() };
    let pool = Pool::new(params, provider.clone()).unwrap().bind();
    let (first, second) = (pool.alloc_page().unwrap(), pool.alloc_page().unwrap());
    provider.on_the_next_reservation(|| drop(first));
    let _found = pool.alloc_page().expect("the second look finds it");
    pool.acknowledge_wake();
    assert!(pool.alloc_page().is_none() && !is_woken(&pool));
    drop((_third, other));
    assert!(is_woken(&pool), "the provider has a page");
    drop(second);
}

#[test]
fn a_provider_page_wakes_a_pool_below_low_water() {
    let memory = PlainMemory::new(2, 0).unwrap();
    let other = Pool::new(PoolParams { refill: 1, ..Default::default() }, memory.clone()).unwrap().bind();
    let second = other.alloc_page().unwrap();
    let params = PoolParams { wakeup: true, low_water: 1, refill: 1, ..Default::default() };
    let pool = Pool::new(params, memory).unwrap().bind();
    let _last = pool.alloc_page().expect("the last one");
    assert!(!is_woken(&pool));
    drop((second, other));
    assert!(is_woken(&pool), "a page came back to the provider");
}

/// A provider whose other user takes every page that comes back, before the pool asks for it.
#[derive(Debug)]
struct Coveted(Arc<Arena>);

// SAFETY: every promise is the inner provider's; what is taken back at once is never used.
unsafe impl Provider for Coveted {
    fn area(&self) -> &Arc<Area> {
        self.0.area()
    }

    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        self.0.reserve(order, node, out)
    }

    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        // SAFETY: the caller keeps the same promises.
        unsafe { self.0.release(order, pages) };
        let mut taken = pages.to_vec();
        self.0.reserve(order, None, &mut taken);
    }

    fn available(&self, order: u8) -> usize {
        self.0.available(order)
    }

    fn current_node(&self) -> NodeId {
        self.0.current_node()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn pages_of_another_node_do_not_hide_one_behind_them() {
    let topology = Topology::pretend_halves(2).with_current_node(Arc::new(AtomicU8::new(0)));
    let params = ArenaParams { max_bytes: 4 << 20, topology, ..Default::default() };
    let provider = Arc::new(Coveted(Arena::new(params).unwrap()));
    let pool = Pool::new(PoolParams { wakeup: true, ..Default::default() }, provider.clone()).unwrap().bind();
    let (mut near, mut far): (Vec<_>, Vec<_>) = (0..1024)
        .map(|_| pool.alloc_page().unwrap())
        .partition(|buffer| provider.area().node_of(buffer.page()) == NodeId(0));
    let returned = [far.pop().unwrap(), far.pop().unwrap(), far.pop().unwrap(), near.pop().unwrap()];
    thread::spawn(move || returned.into_iter().for_each(drop)).join().unwrap();
    assert!(alloc_or_wake(&pool).is_some(), "a page of this node lies in the lane");
}

/// Refuses new regions while it is told to: by being asked, or for good as one that fixes the area.
#[derive(Debug)]
struct Reluctant {
    id: DomainId,
    fixes: bool,
    refuses: AtomicBool,
}

impl DmaDomain for Reluctant {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        "reluctant".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        let refused = self.refuses.load(Ordering::Relaxed) && region.offset() > 0;
        if refused { Err("not now".into()) } else { Ok(DeviceAddr(region.offset())) }
    }
    fn unmap(&self, _: &Region, _: DeviceAddr) {}
    fn sync_for_device(&self, _: DeviceAddr, _: usize) {}
    fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {}
    fn fixes_area(&self) -> bool {
        self.fixes
    }
}

/// A pool that has the first of two regions, and another one of the same arena whose domain keeps that from
/// growing.
fn starved_for_growth(fixes: bool) -> (Arc<Reluctant>, Bound, Vec<PageBuf>, Bound) {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).unwrap();
    let domain = Arc::new(Reluctant { id: DomainId::unique(), fixes, refuses: AtomicBool::new(true) });
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let other = Pool::new(PoolParams { domains, ..Default::default() }, arena.clone()).unwrap().bind();
    let poor = Pool::new(PoolParams { wakeup: true, ..Default::default() }, arena).unwrap().bind();
    let taken = drain(&poor);
    assert!(taken.len() == 1024 && !is_woken(&poor));
    (domain, other, taken, poor)
}

#[test]
fn the_arena_grows_for_another_pool() {
    let (domain, other, _taken, poor) = starved_for_growth(false);
    domain.refuses.store(false, Ordering::Relaxed);
    let _page = other.alloc_page().expect("the arena grows");
    assert!(is_woken(&poor), "the arena has 960 pages");
    assert!(poor.alloc_page().is_some());
}

#[test]
fn the_arena_may_grow_again() {
    let (_domain, other, _taken, poor) = starved_for_growth(true);
    drop(other); // the domain that fixed the area goes with it
    assert!(is_woken(&poor), "the arena can grow by 1024 pages");
    assert!(poor.alloc_page().is_some());
}

/// Reads the descriptor as any event counter: how many signals there were since the last time. `None` if
/// there was none.
fn read_signals(pool: &Bound) -> Option<u64> {
    let mut count = [0; 8];
    let fd = pool.wake_fd().unwrap().try_clone_to_owned().unwrap();
    File::from(fd).read(&mut count).ok().map(|_| u64::from_ne_bytes(count))
}

#[test]
fn returning_fragments_signal_once_for_each_sleep() {
    let params = PoolParams { wakeup: true, ..Default::default() };
    let pool = Pool::new(params, PlainMemory::new(2, 0).unwrap()).unwrap().bind();
    let mut frags: Vec<_> = std::iter::from_fn(|| pool.alloc_frag(1024)).collect();
    assert_eq!(frags.len(), 8);
    for frag in frags.drain(..6) {
        thread::spawn(|| drop(frag)).join().unwrap();
        let _ = pool.alloc_frag(1024); // into nothing, but for one page that is complete
    }
    assert_eq!(read_signals(&pool), Some(1), "the owner never went to sleep in between");
}

#[test]
fn no_wakeup_is_missed_by_reading_or_not_acknowledging() {
    let params = PoolParams { wakeup: true, ..Default::default() };
    let pool = Pool::new(params, PlainMemory::new(1, 0).unwrap()).unwrap().bind();
    for round in 0..6 {
        let page = pool.alloc_page().unwrap();
        assert!(pool.alloc_page().is_none());
        thread::spawn(|| drop(page)).join().unwrap();
        assert!(is_woken(&pool), "round {round}");
        if round < 3 {
            assert_eq!(read_signals(&pool), Some(1), "round {round}");
        }
    }
}
