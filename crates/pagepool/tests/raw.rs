//! Buffers as addresses: what is refused, and what comes home after the end.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use pagepool::testing::{CheckingIommu, PlainMemory};
use pagepool::{Bound, DeviceAddr, DmaDomain, IdentityDomain, OffsetDomain, Pool, PoolParams, RawError};

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
fn what_a_device_had_when_the_pool_ended_comes_home() {
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
    assert!(shutdown.wait(Duration::from_secs(10)));
    assert_eq!((memory.free(), iommu.counts().bad_unmaps), (256, 0));
}

#[test]
fn what_a_device_had_when_it_went_away_comes_home() {
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
