//! Packets whose buffers return while a device panics.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, DmaDomain, Pool, PoolParams, XdpBuff, XdpFrame};
use pagepool_skb::{SkBuff, SkbCache};

use crate::panicking_device::PanicsOnce;

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

#[test]
fn a_panic_in_a_packets_end_loses_no_buffer_and_no_block() {
    let domain = PanicsOnce::new();
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let pool = pool_of(PoolParams { sync_for_device: true, domains, ..Default::default() });
    let cache = SkbCache::new(1).unwrap();
    for frags in [5, 0] {
        let packet = SkBuff::from_frame(&cache, frame(&pool, frags)).unwrap();
        domain.arm();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(packet))).is_err());
        assert_eq!(pool.inflight().out, 0, "the one that the device was being handed left the pool");
    }
    drop(SkBuff::from_frame(&cache, frame(&pool, 1)).expect("the only block is free"));
    assert_eq!(pool.stats().release, 2);
}

#[test]
fn a_panic_while_a_head_moves_leaves_the_packet_whole() {
    let domain = PanicsOnce::new();
    let domains: Vec<Arc<dyn DmaDomain>> = vec![domain.clone()];
    let params = PoolParams { sync_for_device: true, headroom: 1024, domains, ..Default::default() };
    let pool = pool_of(params);
    let cache = SkbCache::new(1).unwrap();
    let mut received = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    received.data_mut().fill(7);
    let mut packet = SkBuff::from_buff(&cache, received).unwrap();
    domain.arm();
    assert!(catch_unwind(AssertUnwindSafe(|| packet.cow_head(2000))).is_err());
    assert_eq!((packet.data(), packet.headroom()), (&[7; 60][..], 2000));
}
