//! Callbacks that panic, each of them: the pool's books stay right, nothing that is the
//! pool's is lost, and the pool ends.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]
// UNSAFETY: a provider passes the word of another one on.
#![expect(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pagepool::{
    Area, Arena, ArenaParams, Bound, DeferredUser, DeviceAddr, DmaDomain, DomainId, InUse, NodeId, PageBuf,
    PageIdx, Pool, PoolParams, Provider, Region, Shutdown, Topology, XdpBuff, XdpFrame, XdpFrameBulk,
};

/// The callbacks that a pool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callback {
    SyncForDevice,
    SyncForCpu,
    Unmap,
    Reserve,
    Release,
    Available,
    CurrentNode,
    HasNode,
    Refresh,
    InUse,
}

/// Provider, domain and user of a pool: all its callbacks. One of them panics, once.
#[derive(Debug)]
struct Hooks {
    id: DomainId,
    arena: Arc<Arena>,
    panics_in: AtomicU32,
    /// Calls of that callback until it panics.
    calls_left: AtomicUsize,
    has_panicked: AtomicBool,
    /// What the user of deferred buffers answers.
    busy: AtomicBool,
}

impl Hooks {
    fn arm(&self, callback: Callback, nth: usize) {
        self.panics_in.store(callback as u32, Relaxed);
        self.calls_left.store(nth, Relaxed);
    }

    fn called(&self, callback: Callback) {
        if self.panics_in.load(Relaxed) == callback as u32 && self.calls_left.fetch_sub(1, Relaxed) == 1 {
            self.panics_in.store(u32::MAX, Relaxed);
            self.has_panicked.store(true, Relaxed);
            panic!("{callback:?} panics, which the test expects");
        }
    }
}

#[derive(Debug)]
struct Device(Arc<Hooks>);

impl DmaDomain for Device {
    fn id(&self) -> DomainId {
        self.0.id
    }
    fn name(&self) -> String {
        "panics".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        Ok(DeviceAddr(region.offset()))
    }
    fn unmap(&self, _: &Region, _: DeviceAddr) {
        self.0.called(Callback::Unmap);
    }
    fn sync_for_device(&self, _: DeviceAddr, _: usize) {
        self.0.called(Callback::SyncForDevice);
    }
    fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {
        self.0.called(Callback::SyncForCpu);
    }
    fn coherent(&self) -> bool {
        false
    }
}

// SAFETY: all that it gives is the arena's, which it keeps.
unsafe impl Provider for Hooks {
    fn area(&self) -> &Arc<Area> {
        self.arena.area()
    }
    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        self.called(Callback::Reserve);
        self.arena.reserve(order, node, out)
    }
    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        // SAFETY: the caller promises just this.
        unsafe { self.arena.release(order, pages) };
        self.called(Callback::Release); // behind it: what is lost then, the pool lost
    }
    fn available(&self, order: u8) -> usize {
        self.called(Callback::Available);
        self.arena.available(order)
    }
    fn current_node(&self) -> NodeId {
        self.called(Callback::CurrentNode);
        NodeId(0)
    }
    fn has_node(&self, node: NodeId) -> bool {
        self.called(Callback::HasNode);
        self.arena.has_node(node)
    }
    fn describe(&self) -> String {
        self.arena.describe()
    }
}

#[derive(Debug)]
struct Reader(Arc<Hooks>);

impl InUse for Reader {
    fn refresh(&self) {
        self.0.called(Callback::Refresh);
    }
    fn in_use(&self, _: u64) -> bool {
        self.0.called(Callback::InUse);
        self.0.busy.load(Relaxed)
    }
}

const REFILL: usize = 8;

/// A pool all of whose callbacks are `hooks`.
struct Scene {
    hooks: Arc<Hooks>,
    user: DeferredUser,
    pool: Bound,
}

impl Scene {
    fn new() -> Self {
        Self::with(|params| params)
    }

    fn with(change: fn(PoolParams) -> PoolParams) -> Self {
        // Two nodes, so that pages of the wrong one leave the pool.
        let topology = Topology::pretend_halves(2);
        let params = ArenaParams { max_bytes: 8 << 20, commit_all: true, topology, ..Default::default() };
        let hooks = Arc::new(Hooks {
            id: DomainId::unique(),
            arena: Arena::new(params).unwrap(),
            panics_in: AtomicU32::new(u32::MAX),
            calls_left: AtomicUsize::new(0),
            has_panicked: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        });
        let pool = Pool::new(change(Self::params(&hooks)), hooks.clone()).unwrap().bind();
        let user = pool.deferred_user(Arc::new(Reader(hooks.clone()))).unwrap();
        Self { hooks, user, pool }
    }

    /// A small cache, one short lane and a short ring: all are full soon.
    fn params(hooks: &Arc<Hooks>) -> PoolParams {
        PoolParams {
            cache_size: 2 * REFILL,
            refill: REFILL,
            max_lanes: 1,
            lane_size: 32,
            ring_size: 32,
            defer_capacity: 8,
            sync_for_device: true,
            domains: vec![Arc::new(Device(hooks.clone()))],
            ..Default::default()
        }
    }

    fn pages(&self, n: usize) -> Vec<PageBuf> {
        (0..n).map(|_| self.pool.alloc_page().unwrap()).collect()
    }

    /// Pages and all fragments of other pages, in turns.
    fn mixed(&self) -> Vec<PageBuf> {
        let pages_and_frags =
            |n| if n % 3 == 0 { self.pool.alloc_page() } else { self.pool.alloc_frag(2048) };
        (0..18).map(|n| pages_and_frags(n).unwrap()).collect()
    }

    fn defer(&self, n: u64) {
        (0..n).for_each(|i| self.pool.defer(&self.user, self.pool.alloc_page().unwrap(), i).unwrap());
    }
}

/// Does something on a thread of its own, and panics as it did.
fn elsewhere(work: impl FnOnce() + Send + 'static) {
    if let Err(panicked) = thread::spawn(work).join() {
        std::panic::resume_unwind(panicked);
    }
}

/// What is made ready before the callback is armed, and what is done then.
type Act = fn(&Scene) -> Box<dyn FnOnce(&Scene)>;

/// One row: a callback, at which of its calls it panics, and what brings it about.
type Row = (Callback, usize, &'static str, Act);

fn give<T: 'static>(what: T, put: impl FnOnce(T) + 'static) -> Box<dyn FnOnce(&Scene)> {
    Box::new(move |_| put(what))
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    (Callback::Reserve, 1, "a refill", |_| Box::new(|s| drop(s.pool.alloc_page()))),
    (Callback::Available, 1, "a refill", |_| Box::new(|s| drop(s.pool.alloc_page()))),
    (Callback::SyncForDevice, 1, "the first page of a refill", |_| Box::new(|s| drop(s.pool.alloc_page()))),
    (Callback::SyncForDevice, 3, "a page of a refill", |_| Box::new(|s| drop(s.pool.alloc_page()))),
    (Callback::SyncForDevice, 8, "the last page of a refill", |_| Box::new(|s| drop(s.pool.alloc_page()))),
    (Callback::CurrentNode, 1, "a refill", |_| Box::new(|s| drop(s.pool.alloc_page()))),
    (Callback::CurrentNode, 1, "a drain", |s| {
        let pages = s.pages(REFILL);
        elsewhere(|| drop(pages));
        Box::new(|s| drop(s.pool.alloc_page()))
    }),
    (Callback::SyncForDevice, 2, "a page on the owner's thread", |s| give(s.pages(3), drop)),
    (Callback::SyncForDevice, 2, "a page on another thread",
        |s| give(s.pages(3), |pages| elsewhere(|| drop(pages)))),
    (Callback::SyncForDevice, 2, "a page through the ring",
        |s| give(s.pages(3), |pages| pages.into_iter().for_each(PageBuf::put_ring))),
    (Callback::SyncForDevice, 3, "a bulk on the owner's thread",
        |s| give(s.pages(6), |mut pages| pagepool::put_bulk(&mut pages))),
    (Callback::SyncForDevice, 3, "a bulk on another thread",
        |s| give(s.pages(6), |mut pages| elsewhere(move || pagepool::put_bulk(&mut pages)))),
    (Callback::SyncForDevice, 3, "a bulk through the ring",
        |s| give(s.pages(6), |mut pages| pagepool::put_ring_bulk(&mut pages))),
    (Callback::SyncForDevice, 3, "the first chunk of a bulk on the owner's thread",
        |s| give(s.pages(150), |mut pages| pagepool::put_bulk(&mut pages))),
    (Callback::SyncForDevice, 3, "the first chunk of a bulk on another thread",
        |s| give(s.pages(150), |mut pages| elsewhere(move || pagepool::put_bulk(&mut pages)))),
    (Callback::SyncForDevice, 3, "the first chunk of a bulk through the ring",
        |s| give(s.pages(150), |mut pages| pagepool::put_ring_bulk(&mut pages))),
    (Callback::SyncForDevice, 1, "a bulk with fragments on the owner's thread",
        |s| give(s.mixed(), |mut mixed| pagepool::put_bulk(&mut mixed))),
    (Callback::SyncForDevice, 7, "a fragment in a bulk on the owner's thread",
        |s| give(s.mixed(), |mut mixed| pagepool::put_bulk(&mut mixed))),
    (Callback::SyncForDevice, 7, "a fragment in a bulk of the owner through the ring",
        |s| give(s.mixed(), |mut mixed| pagepool::put_ring_bulk(&mut mixed))),
    (Callback::SyncForDevice, 1, "a bulk with fragments on another thread",
        |s| give(s.mixed(), |mut mixed| elsewhere(move || pagepool::put_bulk(&mut mixed)))),
    (Callback::SyncForDevice, 1, "a bulk with fragments through the ring of another thread",
        |s| give(s.mixed(), |mut mixed| elsewhere(move || pagepool::put_ring_bulk(&mut mixed)))),
    (Callback::SyncForDevice, 3, "packets", |s| {
        let packets = s.pages(150).into_iter().map(|page| XdpBuff::received(page, 60).unwrap()).collect();
        give(packets, |mut packets| pagepool::put_packets(&mut packets))
    }),
    (Callback::SyncForDevice, 3, "frames", |s| {
        let frame = |page| XdpBuff::received(page, 60).unwrap().into();
        let frames: Vec<XdpFrame> = s.pages(150).into_iter().map(frame).collect();
        give(frames, |frames| {
            elsewhere(move || {
                let mut bulk = XdpFrameBulk::new();
                frames.into_iter().for_each(|frame| bulk.push(frame));
            })
        })
    }),
    (Callback::SyncForDevice, 3, "a batch on the owner's thread", |s| give(s.pool.alloc_batch(6), drop)),
    (Callback::SyncForDevice, 3, "a batch on another thread",
        |s| give(s.pool.alloc_batch(6), |batch| elsewhere(|| drop(batch)))),
    (Callback::SyncForDevice, 1, "the last fragment on the owner's thread", |s| give(s.mixed(), drop)),
    (Callback::SyncForDevice, 1, "the last fragment in a lane", |s| {
        let mixed = s.mixed();
        elsewhere(|| drop(mixed));
        s.pool.update_nid(None).unwrap(); // empties the cache
        Box::new(|s| drop(s.pool.alloc_page()))
    }),
    (Callback::SyncForDevice, 2, "a page to be cut", |_| Box::new(|s| drop(s.pool.alloc_frag(64)))),
    (Callback::SyncForDevice, 1, "a page that is cut again", |s| {
        (0..2).for_each(|_| drop(s.pool.alloc_frag(2048)));
        Box::new(|s| drop(s.pool.alloc_frag(2048)))
    }),
    (Callback::SyncForCpu, 1, "a reader", |s| {
        give(s.pages(1), |mut pages| pages[0].sync_for_cpu(0, 64))
    }),
    (Callback::HasNode, 1, "another node", |_| Box::new(|s| s.pool.update_nid(Some(NodeId(1))).unwrap())),
    (Callback::Release, 1, "another node", |s| {
        drop(s.pages(1));
        Box::new(|s| s.pool.update_nid(Some(NodeId(1))).unwrap())
    }),
    (Callback::Release, 1, "an off-node page", |s| {
        let pages = s.pages(4);
        s.pool.update_nid(Some(NodeId(1))).unwrap();
        let [one, two]: [_; 2] = [s.pages(1), s.pages(1)];
        s.pool.update_nid(Some(NodeId(1))).unwrap();
        elsewhere(|| drop((one, pages, two)));
        Box::new(|s| drop(s.pool.alloc_page()))
    }),
    (Callback::Release, 1, "a full ring", |s| {
        give(s.pages(33), |pages| pages.into_iter().for_each(PageBuf::put_ring))
    }),
    (Callback::Release, 1, "a bulk without room", |s| {
        give(s.pages(100), |mut pages| elsewhere(move || pagepool::put_bulk(&mut pages)))
    }),
    (Callback::Release, 1, "shrink", |s| {
        let pages = s.pages(100);
        elsewhere(|| drop(pages));
        Box::new(|s| assert!(s.pool.shrink(0) > 100))
    }),
    (Callback::SyncForDevice, 3, "a fragment in a pool that shrinks", |s| {
        let mixed = s.mixed();
        elsewhere(|| drop(mixed));
        Box::new(|s| assert!(s.pool.shrink(0) > 100))
    }),
    (Callback::Refresh, 1, "shrink", |s| {
        s.defer(4);
        Box::new(|s| assert!(s.pool.shrink(0) > 100))
    }),
    (Callback::Refresh, 1, "a poll", |s| {
        s.defer(4);
        Box::new(|s| assert!(s.pool.poll_deferred() > 4))
    }),
    (Callback::InUse, 3, "a poll", |s| {
        s.defer(4);
        Box::new(|s| assert!(s.pool.poll_deferred() > 4))
    }),
    (Callback::SyncForDevice, 2, "a deferred page", |s| {
        s.defer(4);
        Box::new(|s| assert!(s.pool.poll_deferred() > 4))
    }),
];

/// The pool has as many pages as its counters say.
fn books_are_right(pool: &Bound, arena: &Arena, row: &str) {
    assert_eq!(arena.pages_out(), pool.inflight().total as u64, "{row}: {:?}", pool.stats());
}

/// The pool still does all that it did, and nothing of it is left at the end.
fn goes_on_and_ends(Scene { hooks, user, pool }: Scene, row: &str) {
    // Every queue is emptied: what the counters say is there must come out.
    let all: Vec<_> = (0..80).map(|_| pool.alloc_page().unwrap()).collect();
    assert_eq!((pool.inflight().lanes, pool.inflight().ring), (0, 0), "{row}: counted, and not there");
    pool.poll_deferred();
    drop((all, user));
    assert_eq!(pool.inflight().out, 0, "{row}: nothing is lost");
    books_are_right(&pool, &hooks.arena, row);
    ended(&pool.destroy(), &hooks, row);
}

fn ended(shutdown: &Shutdown, hooks: &Hooks, row: &str) {
    assert!(shutdown.wait(Duration::from_secs(60)), "{row}: {}", shutdown.report());
    assert_eq!(hooks.arena.pages_out(), 0, "{row}");
    assert_eq!(hooks.arena.area().domains(), [""; 0], "{row}");
}

#[test]
fn whichever_callback_panics_the_books_stay_right() {
    for &(callback, nth, when, act) in ROWS {
        let (scene, row) = (Scene::new(), format!("{callback:?} {nth}, {when}"));
        let act = act(&scene);
        scene.hooks.arm(callback, nth);
        let panicked = catch_unwind(AssertUnwindSafe(|| act(&scene))).is_err();
        assert!(panicked && scene.hooks.has_panicked.load(Relaxed), "{row}: nothing panicked");
        books_are_right(&scene.pool, &scene.hooks.arena, &row);
        goes_on_and_ends(scene, &row);
    }
}

/// A pool that syncs nothing, whose pages go straight into a lane that the thread has at hand.
#[test]
fn a_bulk_without_room_returns_although_its_provider_panics() {
    for n in [30, 64, 100, 200] {
        let (scene, row) =
            (Scene::with(|params| PoolParams { sync_for_device: false, ..params }), n.to_string());
        let mut pages = scene.pages(n + 1);
        scene.hooks.arm(Callback::Release, 1);
        let returns = move || {
            drop(pages.pop());
            pagepool::put_bulk(&mut pages);
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| elsewhere(returns))).is_err();
        assert_eq!(panicked, n > 63, "{row}: a lane and a ring of 32 each");
        scene.hooks.arm(Callback::Release, usize::MAX);
        goes_on_and_ends(scene, &row);
    }
}

/// As above, while the pool ends or after it.
#[test]
fn whichever_callback_panics_at_the_end_the_pool_ends() {
    type Late = fn(Vec<PageBuf>);
    let late: Late = |buffers| elsewhere(|| drop(buffers));
    let rows: [(Callback, usize, &str, Option<Late>); 6] = [
        (Callback::Release, 1, "destroy", None),
        (Callback::Unmap, 1, "destroy", None),
        (Callback::SyncForDevice, 1, "a late page", Some(late)),
        (Callback::SyncForDevice, 2, "a late bulk", Some(|mut buffers| pagepool::put_bulk(&mut buffers))),
        (Callback::Release, 1, "a late page", Some(late)),
        (Callback::Release, 3, "a late page on the thread that ended the pool", Some(drop)),
    ];
    for (callback, nth, when, returns) in rows {
        let (scene, row) = (Scene::new(), format!("{callback:?} {nth}, {when}"));
        let (out, Scene { hooks, user, pool }) = (scene.pages(5), scene);
        let pool_ref = pool.handle();
        drop(user);
        let panicked = if let Some(returns) = returns {
            // The device has another user, so that late pages are synced, too.
            let (area, device) = (hooks.arena.area(), Arc::new(Device(hooks.clone())));
            let mapping = area.attach(&(device as Arc<dyn DmaDomain>)).unwrap();
            let shutdown = pool.destroy();
            hooks.arm(callback, nth);
            let panicked = catch_unwind(AssertUnwindSafe(|| returns(out))).is_err();
            area.detach(&mapping);
            ended(&shutdown, &hooks, &row);
            panicked
        } else {
            drop(out);
            hooks.arm(callback, nth);
            catch_unwind(AssertUnwindSafe(|| drop(pool.destroy()))).is_err()
        };
        assert!(panicked && hooks.has_panicked.load(Relaxed), "{row}: nothing panicked");
        let (stats, pages) = (pool_ref.stats(), hooks.arena.pages_out());
        assert_eq!((stats.hold, pages), (stats.release, 0), "{row}");
        assert_eq!(hooks.arena.area().domains(), [""; 0], "{row}");
        drop(pool_ref);
        assert_eq!(Arc::strong_count(&hooks), 1, "{row}: the pool is freed");
    }
}
