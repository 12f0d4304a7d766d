//! Buffers as addresses: what is refused, and what returns after the end.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pagepool::{Bound, DeviceAddr, DmaDomain, IdentityDomain, OffsetDomain, Pool, PoolParams, RawError};
use pagepool_testing::{CheckingIommu, PlainMemory};

fn pool_in(domain: Arc<dyn DmaDomain>, memory: &Arc<PlainMemory>) -> Bound {
    let params = PoolParams { domains: vec![domain], ..Default::default() };
    Pool::new(params, memory.clone()).unwrap().bind()
}

fn memory() -> Arc<PlainMemory> {
    PlainMemory::new(256, 0).unwrap()
}

#[test]
fn an_address_comes_back_once() {
    let pool = pool_in(Arc::new(IdentityDomain::new("nic")), &memory());
    let raw = pool.alloc_page().unwrap().into_raw().unwrap();
    let handle = pool.handle();
    let buffer = handle.from_raw(DeviceAddr(raw.addr.0 + 256)).unwrap();
    assert_eq!((buffer.dma_addr(), buffer.len()), (Some(raw.addr), 4096));
    assert_eq!(handle.from_raw(raw.addr).unwrap_err(), RawError::NotOut(raw.addr));
    drop(buffer);
    assert_eq!(handle.from_raw(raw.addr).unwrap_err(), RawError::NotOut(raw.addr));
}

#[test]
fn what_is_not_the_pools_is_refused_and_nothing_changes() {
    let memory = memory();
    let domain: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("nic"));
    let (ours, theirs) = (pool_in(domain.clone(), &memory), pool_in(domain, &memory));
    let raw = theirs.alloc_page().unwrap().into_raw().unwrap();
    let owned = ours.alloc_page().unwrap();
    assert_eq!(ours.handle().from_raw(raw.addr).unwrap_err(), RawError::NotOurs(raw.addr));
    let never = owned.dma_addr().unwrap();
    assert_eq!(ours.handle().from_raw(never).unwrap_err(), RawError::NotOut(never));
    let nobody = DeviceAddr(1);
    assert_eq!(ours.handle().from_raw(nobody).unwrap_err(), RawError::Unmapped(nobody));
    assert!(theirs.handle().from_raw(raw.addr).is_ok(), "the refusals changed nothing");
    let plain = Pool::new(PoolParams::default(), memory).unwrap();
    assert_eq!(plain.handle().from_raw(nobody).unwrap_err(), RawError::NoDomain);
    assert!(RawError::NoDomain.to_string().contains("no domain"));
}

#[test]
fn frags_that_share_a_line_have_no_raw_form() {
    let domain: Arc<dyn DmaDomain> = Arc::new(OffsetDomain::new("umem"));
    let params = PoolParams { domains: vec![domain], frag_align: 8, ..Default::default() };
    let pool = Pool::new(params, memory()).unwrap().bind();
    let frag = pool.alloc_frag(100).unwrap();
    let frag = frag.into_raw().unwrap_err();
    assert_eq!(frag.len(), 100, "it comes back unchanged");
    let whole = pool.alloc_page().unwrap().into_raw().expect("a whole page has its lines to itself");
    drop(pool.handle().from_raw(whole.addr).unwrap());
}

#[test]
fn a_frag_comes_back_with_whole_lines() {
    let pool = pool_in(Arc::new(OffsetDomain::new("umem")), &memory());
    let frags = [pool.alloc_frag(100).unwrap(), pool.alloc_frag(200).unwrap()];
    let [first, second] = frags.map(|frag| frag.into_raw().unwrap());
    let handle = pool.handle();
    let back = handle.from_raw(DeviceAddr(second.addr.0 + 199)).unwrap();
    assert_eq!((back.offset(), back.len()), (128, 256));
    assert!(handle.from_raw(DeviceAddr(second.addr.0)).is_err());
    assert_eq!(handle.from_raw(first.addr).unwrap().len(), 128);
}

#[test]
fn device_buffers_return_after_the_pool_ended() {
    let iommu = CheckingIommu::new("nic");
    let memory = memory();
    let pool = pool_in(iommu.clone(), &memory);
    let raws = [pool.alloc_page().unwrap(), pool.alloc_frag(100).unwrap()].map(|b| b.into_raw().unwrap());
    let handle = pool.handle();
    let shutdown = pool.destroy();
    assert_eq!(iommu.mapped_regions(), 0, "the device cannot reach it any more");
    for raw in raws {
        assert!(!shutdown.is_complete());
        let buffer = handle.from_raw(raw.addr).expect("it was out");
        assert_eq!(buffer.dma_addr(), None);
        assert!(handle.from_raw(raw.addr).is_err());
    }
    assert!(shutdown.wait(Duration::from_secs(60)), "{}", shutdown.report());
    assert_eq!((memory.free(), iommu.counts().bad_unmaps), (256, 0));
}

#[test]
fn buffers_of_a_device_that_went_away_return() {
    let iommu = CheckingIommu::new("nic");
    let memory = memory();
    let pool = pool_in(iommu.clone(), &memory);
    let raw = pool.alloc_page().unwrap().into_raw().unwrap();
    assert!(pagepool::Provider::area(&*memory).device_gone(iommu.id()));
    assert_eq!(pool.handle().from_raw(raw.addr).unwrap().dma_addr(), None);
    assert_eq!(pool.inflight().out, 0);
    drop(pool);
    let counts = iommu.counts();
    assert_eq!((counts.maps, counts.unmaps, counts.bad_unmaps), (1, 1, 0), "unmapped exactly once");
}

#[test]
fn addresses_are_allocated_and_returned_in_bulk() {
    let pool = pool_in(Arc::new(OffsetDomain::new("umem")), &memory());
    let handle = pool.handle();
    let mut addrs = [DeviceAddr(0); 300];
    assert_eq!(pool.alloc_addr_bulk(&mut addrs), Ok(256), "that is all there is");
    assert_eq!(pool.stats().alloc_failed, 1);
    let (out, none) = addrs.split_at(256);
    handle.put_addr_bulk(out).unwrap();
    assert_eq!(none, [DeviceAddr(0); 44], "unchanged");
    let stats = pool.stats();
    assert_eq!((stats.recycle_cached, stats.recycle_cache_full, pool.inflight().out), (128, 128, 0));
}

/// In one call: good ones, one twice, one of a fragment, one within a page, one of a page that has a
/// reference, and some that are nobody's.
#[test]
fn an_address_that_is_refused_does_not_keep_the_others() {
    let memory = memory();
    let domain: Arc<dyn DmaDomain> = Arc::new(OffsetDomain::new("umem"));
    let (pool, theirs) = (pool_in(domain.clone(), &memory), pool_in(domain, &memory));
    let others_addr = theirs.alloc_page().unwrap().into_raw().unwrap().addr;
    let mut held = pool.alloc_page().unwrap();
    let page_ref = held.page_ref();
    let with_refs = held.into_raw().unwrap().addr;
    let frag = pool.alloc_frag(100).unwrap().into_raw().unwrap().addr;
    let mut good = [DeviceAddr(0); 3];
    assert_eq!(pool.alloc_addr_bulk(&mut good), Ok(3));
    let beyond = [1 << 22, 1 << 44, u64::MAX - 4095].map(DeviceAddr);
    let inside = DeviceAddr(good[2].0 + 4095);
    let addrs = [
        good[0],
        good[1],
        good[1],
        with_refs,
        frag,
        others_addr,
        beyond[0],
        beyond[1],
        beyond[2],
        inside,
        good[0],
    ];
    assert_eq!(pool.handle().put_addr_bulk(&addrs), Err(RawError::NotOut(good[1])));
    assert_eq!((pool.inflight().out, pool.stats().recycle_released_refcnt), (0, 1));
    assert_eq!(pool.handle().put_addr_bulk(&beyond[..2]), Err(RawError::Unmapped(beyond[0])));
    assert_eq!(theirs.inflight().out, 1);
    theirs.handle().put_addr_bulk(&[others_addr]).unwrap();
    drop(page_ref);
}

#[test]
fn any_address_of_a_page_of_a_higher_order_is_its() {
    let memory = PlainMemory::new(16, 2).unwrap();
    let params = PoolParams { order: 2, domains: vec![CheckingIommu::new("nic")], ..Default::default() };
    let pool = Pool::new(params, memory).unwrap().bind();
    for within in [0, 4096, 16383] {
        let raw = pool.alloc_page().unwrap().into_raw().unwrap();
        assert_eq!(raw.len, 16384);
        pool.handle().put_addr_bulk(&[DeviceAddr(raw.addr.0 + within)]).unwrap();
        assert!(pool.handle().put_addr_bulk(&[raw.addr]).is_err());
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_pool_without_addresses_allocates_none() {
    let memory = memory();
    let plain = Pool::new(PoolParams::default(), memory.clone()).unwrap().bind();
    assert_eq!(plain.alloc_addr_bulk(&mut [DeviceAddr(0); 4]), Err(RawError::NoDomain));
    let iommu = CheckingIommu::new("nic");
    let pool = pool_in(iommu.clone(), &memory);
    drop(pool.alloc_page());
    assert!(pagepool::Provider::area(&*memory).device_gone(iommu.id()));
    assert_eq!(pool.alloc_addr_bulk(&mut [DeviceAddr(0); 4]), Err(RawError::DeviceGone));
    assert_eq!((plain.inflight().out, pool.inflight().out), (0, 0));
}

/// A domain that maps each region where it is set to.
#[derive(Debug)]
struct Chosen {
    id: pagepool::DomainId,
    at: fn(&pagepool::Region) -> u64,
    mapped: AtomicUsize,
}

impl Chosen {
    fn new(at: fn(&pagepool::Region) -> u64) -> Arc<Self> {
        Arc::new(Self { id: pagepool::DomainId::unique(), at, mapped: AtomicUsize::new(0) })
    }
}

impl DmaDomain for Chosen {
    fn id(&self) -> pagepool::DomainId {
        self.id
    }
    fn name(&self) -> String {
        "chosen".into()
    }
    fn map(&self, region: &pagepool::Region) -> Result<DeviceAddr, String> {
        self.mapped.fetch_add(1, Ordering::Relaxed);
        Ok(DeviceAddr((self.at)(region)))
    }
    fn unmap(&self, region: &pagepool::Region, at: DeviceAddr) {
        assert_eq!(at.0, (self.at)(region));
        self.mapped.fetch_sub(1, Ordering::Relaxed);
    }
    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
}

/// A pool over an arena, which has regions of 4 MiB.
fn pool_over(domain: Arc<Chosen>, max_bytes: u64) -> Result<Pool, pagepool::Error> {
    let arena = pagepool::ArenaParams { max_bytes, commit_all: true, ..Default::default() };
    let arena = pagepool::Arena::new(arena)?;
    Pool::new(PoolParams { domains: vec![domain], ..Default::default() }, arena)
}

/// These two numbers mean "no address" and "not one distance" in the tables.
#[test]
fn a_region_at_one_of_the_two_highest_addresses_is_refused() {
    // At the address itself; and by the distance of the second region, whose own address looks good.
    let chosen: [fn(&pagepool::Region) -> u64; 4] = [
        |_| u64::MAX,
        |_| u64::MAX - 1,
        |region| if region.offset() == 0 { 0 } else { region.offset() - 1 },
        |region| if region.offset() == 0 { 0 } else { region.offset() - 2 },
    ];
    for at in chosen {
        let domain = Chosen::new(at);
        let error = pool_over(domain.clone(), 8 << 20).unwrap_err().to_string();
        assert!(error.starts_with("domain chosen did not map 4194304 bytes at offset "), "{error}");
        assert!(error.ends_with("map to multiples of 4096"), "{error}");
        assert_eq!(domain.mapped.load(Ordering::Relaxed), 0, "what was mapped is unmapped");
    }
    pool_over(Chosen::new(|region| (u64::MAX - 2).wrapping_add(region.offset())), 8 << 20).unwrap();
}

/// Regions whose device addresses do not follow each other.
#[test]
fn addresses_of_scattered_regions_find_their_pages() {
    let pool = pool_over(Chosen::new(|region| (1 << 30) - region.offset()), 16 << 20).unwrap().bind();
    let mut addrs = vec![DeviceAddr(0); 4096];
    assert_eq!(pool.alloc_addr_bulk(&mut addrs), Ok(4096));
    let mut sorted = addrs.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 4096);
    // Without a way round by a handle.
    let (before, last) = (pool.stats(), addrs.len() - 1);
    assert!(!pool.cached_addrs().put_one(addrs[last]) && pool.cached_addrs().put_one_by_region(addrs[last]));
    assert_eq!(pool.alloc_addr_bulk(&mut addrs[last..]), Ok(1));
    let now = pool.stats();
    assert_eq!((now.alloc_fast - before.alloc_fast, now.recycle_cached - before.recycle_cached), (1, 1));
    let (first, rest) = addrs.split_first().unwrap();
    assert_eq!(pool.handle().from_raw(*first).unwrap().dma_addr(), Some(*first));
    let handle = pool.handle();
    std::thread::scope(|threads| threads.spawn(|| handle.put_addr_bulk(rest).unwrap()).join()).unwrap();
    assert_eq!(pool.inflight().out, 0);
}

/// An address of no page in the middle of a bulk: those before it return with the others, at once.
#[test]
fn an_address_beyond_the_area_ends_a_run_and_does_not_undo_it() {
    let pool = pool_over(Chosen::new(|region| region.offset()), 4 << 20).unwrap().bind();
    let mut addrs = [DeviceAddr(0); 40];
    assert_eq!(pool.alloc_addr_bulk(&mut addrs), Ok(40));
    let beyond = DeviceAddr(1 << 40);
    for (at, beyond) in [(0, DeviceAddr(4 << 20)), (7, beyond), (39, beyond)] {
        let mut given = addrs;
        given[at] = beyond;
        assert_eq!(pool.cached_addrs().put(&given), at);
        assert_eq!(pool.handle().put_addr_bulk(&given[at..]), Err(RawError::Unmapped(beyond)));
        assert_eq!(pool.inflight().out, 1);
        pool.handle().put_addr_bulk(&addrs[at..=at]).unwrap();
        assert_eq!(pool.alloc_addr_bulk(&mut addrs), Ok(40));
    }
    pool.handle().put_addr_bulk(&addrs).unwrap();
}
