//! Packets whose buffers return while a device panics.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pagepool::{
    Arena, ArenaParams, Bound, DeviceAddr, DmaDomain, DomainId, Pool, PoolParams, Region, XdpBuff, XdpFrame,
};
use pagepool_skb::{SkBuff, SkbCache};

fn pool_of(params: PoolParams) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap();
    Pool::new(params, arena).unwrap().bind()
}

fn frame(pool: &Bound, frags: usize) -> XdpFrame {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    for _ in 0..frags {
        packet.add_frag(pool.alloc_page().unwrap(), 0, 60).unwrap();
    }
    packet.into()
}

/// A device that panics once when it is handed memory.
#[derive(Debug)]
struct PanicsOnce(DomainId, AtomicBool);

impl DmaDomain for PanicsOnce {
    fn id(&self) -> DomainId {
        self.0
    }
    fn name(&self) -> String {
        "panics once".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        Ok(DeviceAddr(region.offset()))
    }
    fn unmap(&self, _: &Region, _: DeviceAddr) {}
    fn sync_for_device(&self, _: DeviceAddr, _: usize) {
        assert!(!self.1.swap(false, Relaxed), "the device panics");
    }
    fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {}
    fn coherent(&self) -> bool {
        false
    }
}

#[test]
fn a_panic_in_a_packets_end_loses_no_buffer_and_no_block() {
    let domain = Arc::new(PanicsOnce(DomainId::unique(), AtomicBool::new(false)));
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let pool = pool_of(PoolParams { sync_for_device: true, domains, ..Default::default() });
    let cache = SkbCache::new(1).unwrap();
    for frags in [5, 0] {
        let packet = SkBuff::from_frame(&cache, frame(&pool, frags)).unwrap();
        domain.1.store(true, Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(packet))).is_err());
        assert_eq!(pool.inflight().out, 0, "the one that the device was being handed left the pool");
    }
    drop(SkBuff::from_frame(&cache, frame(&pool, 1)).expect("the only block is free"));
    assert_eq!(pool.stats().release, 2);
}

#[test]
fn a_panic_while_a_head_moves_leaves_the_packet_whole() {
    let domain = Arc::new(PanicsOnce(DomainId::unique(), AtomicBool::new(false)));
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let params = PoolParams { sync_for_device: true, headroom: 1024, domains, ..Default::default() };
    let pool = pool_of(params);
    let cache = SkbCache::new(1).unwrap();
    let mut received = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    received.data_mut().fill(7);
    let mut packet = SkBuff::from_buff(&cache, received).unwrap();
    domain.1.store(true, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| packet.cow_head(2000))).is_err());
    assert_eq!((packet.data(), packet.headroom()), (&[7; 60][..], 2000));
}
