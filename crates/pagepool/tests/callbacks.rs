//! What a callback may do in the middle of a return or an allocation, and what an observer may see beside
//! it.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use pagepool::{
    Arena, ArenaParams, Bound, DeviceAddr, DmaDomain, DomainId, NodeId, Pool, PoolParams, Provider, Region,
    Shutdown, Topology,
};
use pagepool_testing::CheckingIommu;

/// A device that is not coherent, and runs a hook once, inside a sync.
struct Hooked {
    id: DomainId,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Hooked {
    fn new() -> Arc<Self> {
        Arc::new(Self { id: DomainId::unique(), hook: Mutex::new(None) })
    }

    fn set(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl DmaDomain for Hooked {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        "hooked".into()
    }
    fn map(&self, _region: &Region) -> Result<DeviceAddr, String> {
        Ok(DeviceAddr(1 << 32))
    }
    fn unmap(&self, _region: &Region, _at: DeviceAddr) {}
    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
    }
    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn coherent(&self) -> bool {
        false
    }
}

thread_local! {
    static BOUND: Cell<Option<Bound>> = const { Cell::new(None) };
}

fn arena(mib: u64) -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes: mib << 20, ..Default::default() }).unwrap()
}

fn syncing(device: &Arc<Hooked>) -> Bound {
    let params = PoolParams { domains: vec![device.clone()], sync_for_device: true, ..Default::default() };
    Pool::new(params, arena(4)).unwrap().bind()
}

#[test]
fn a_sync_may_send_the_pool_to_another_thread() {
    let device = Hooked::new();
    let pool = syncing(&device);
    let (buffer, returns) = (pool.alloc_page().unwrap(), pool.handle());
    BOUND.set(Some(pool));
    let (send, receive) = mpsc::channel::<Pool>();
    let (done, wait) = mpsc::channel::<()>();
    let owner = std::thread::spawn(move || {
        let pool = receive.recv().unwrap().bind();
        done.send(()).unwrap();
        pool.stats()
    });
    device.set(move || {
        send.send(BOUND.take().unwrap().unbind()).unwrap();
        wait.recv().unwrap();
    });
    drop(buffer);
    assert_eq!(returns.stats().recycle_cached, 0, "this thread does not touch another's cache");
    owner.join().unwrap();
}

/// Ends the pool inside the sync of what `give_back` returns.
fn ended_inside(give_back: impl FnOnce(Vec<pagepool::PageBuf>)) {
    let device = Hooked::new();
    let pool = syncing(&device);
    let mut buffers = Vec::with_capacity(3);
    assert_eq!(pool.alloc_bulk(&mut buffers, 3), 3);
    BOUND.set(Some(pool));
    let (tell, ended) = mpsc::channel::<Shutdown>();
    device.set(move || tell.send(BOUND.take().unwrap().destroy()).unwrap());
    give_back(buffers);
    let shutdown = ended.recv().unwrap();
    assert!(shutdown.wait(Duration::from_secs(60)), "{}", shutdown.report());
}

#[test]
fn a_sync_may_end_the_pool() {
    ended_inside(drop);
    ended_inside(|mut buffers| pagepool::put_bulk(&mut buffers));
    ended_inside(|mut buffers| pagepool::put_ring_bulk(&mut buffers));
}

#[test]
fn a_starved_pool_with_a_wakeup_counts_empty_once_an_allocation() {
    let pool = Pool::new(PoolParams { wakeup: true, ..Default::default() }, arena(1)).unwrap().bind();
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
    let stats = pool.stats();
    assert_eq!(all.len(), 256);
    assert_eq!(stats.alloc_slow + stats.alloc_failed, stats.alloc_empty, "{stats:?}");
}

#[test]
fn pages_that_return_in_frags_obey_the_node_rule() {
    let topology = Topology::pretend_halves(2);
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, topology, ..Default::default() }).unwrap();
    let pool =
        Pool::new(PoolParams { nid: Some(NodeId(0)), ..Default::default() }, arena.clone()).unwrap().bind();
    let frags: Vec<_> = (0..8).map(|_| pool.alloc_frag(4096).unwrap()).collect();
    pool.update_nid(Some(NodeId(1))).unwrap();
    std::thread::spawn(move || drop(frags)).join().unwrap();
    let pages: Vec<_> = (0..8).map(|_| pool.alloc_page().unwrap()).collect();
    assert_eq!(pool.stats().alloc_waive, 1, "one per look at lanes and ring");
    assert!(pages.iter().all(|buffer| arena.area().node_of(buffer.page()) == NodeId(1)));
}

#[test]
fn a_frag_is_the_devices_wherever_packets_begin() {
    let nic = CheckingIommu::new("nic");
    let domains: Vec<Arc<dyn DmaDomain>> = vec![nic.clone()];
    let layout = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
    let pool = Pool::new(PoolParams { domains, sync_for_device: true, ..layout }, arena(4)).unwrap().bind();
    let frag = pool.alloc_frag(1024).unwrap();
    nic.device_write(frag.dma_addr().unwrap(), &[1; 1024]).unwrap();
}

#[test]
fn an_empty_batch_belongs_to_no_pool() {
    let first = Pool::new(PoolParams::default(), arena(1)).unwrap().bind();
    let mut batch = first.alloc_batch(4);
    batch.put();
    drop(first);
    let second = Pool::new(PoolParams::default(), arena(1)).unwrap().bind();
    assert_eq!(second.alloc_bulk(&mut batch, 4), 4);
    let third = Pool::new(PoolParams::default(), arena(1)).unwrap().bind();
    assert_eq!(third.alloc_bulk(&mut batch, 4), 0, "it has the second's pages");
    assert!(batch.push(third.alloc_page().unwrap()).is_err());
}

#[test]
fn observed_counters_never_fall_and_inflight_is_never_negative() {
    let pool = Pool::new(PoolParams { order: 3, ..Default::default() }, arena(8)).unwrap().bind();
    let (observed, stop) = (pool.handle(), Arc::new(AtomicBool::new(false)));
    let (stopped, looks) = (stop.clone(), Arc::new(AtomicU64::new(0)));
    let looked = looks.clone();
    let observer = std::thread::spawn(move || {
        let mut last = observed.stats();
        while !stopped.load(Ordering::Relaxed) {
            let now = observed.stats();
            assert!(now.inflight() >= 0, "{now:?}");
            for ((name, new), (_, old)) in now.fields().into_iter().zip(last.fields()) {
                assert!(new >= old, "{name} went from {old} to {new}");
            }
            last = now;
            looked.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (send, receive) = mpsc::sync_channel::<Vec<_>>(8);
    let returner = std::thread::spawn(move || receive.into_iter().for_each(drop));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) || looks.load(Ordering::Relaxed) < 100 {
        assert!(start.elapsed() < Duration::from_secs(60) && !observer.is_finished());
        send.send((0..128).filter_map(|_| pool.alloc_frag(500)).collect()).unwrap();
        drop(pool.alloc_page());
        pool.update_nid(None).unwrap();
    }
    drop(send);
    returner.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    observer.join().unwrap();
}

#[test]
fn a_wait_may_be_longer_than_the_clock_goes() {
    let pool = Pool::new(PoolParams::default(), arena(1)).unwrap();
    let end = pool.destroy();
    assert!(end.wait(Duration::MAX), "{}", end.report());
}
