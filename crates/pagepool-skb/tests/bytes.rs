//! Packets as `bytes::Bytes`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::{Buf, Bytes};
use pagepool::{DeviceMemory, NodeId, Pool, PoolParams, XdpBuff};
use pagepool_skb::{SkBuff, SkbCache};

use crate::filled_packet::{packet, pool};

fn joined(parts: &[Bytes]) -> Vec<u8> {
    parts.iter().flatten().copied().collect()
}

#[test]
fn parts_of_a_packet_outlive_it_its_cache_and_its_pool() {
    for cloned in [false, true] {
        let (pool, cache) = (pool(), SkbCache::new(4).unwrap());
        let mut packet = SkBuff::from_buff(&cache, packet(&pool, 300, 2)).unwrap();
        packet.pull(14).unwrap();
        packet.add_frag(Arc::<[u8]>::from([9; 50]), 25, 25).unwrap();
        let clone = cloned.then(|| packet.clone());
        let parts: Vec<_> = packet.into_bytes().unwrap().collect();
        let expected = [vec![1; 286], vec![2; 300], vec![3; 300], vec![9; 25]].concat();
        assert_eq!((parts.len(), joined(&parts)), (4, expected.clone()));
        drop(cache);
        let shutdown = pool.destroy();
        if let Some(mut clone) = clone {
            assert_eq!(clone.push(1).is_err(), cloned, "the parts read the head");
            drop(clone);
        }
        let tail = parts[1].slice(100..);
        drop(parts);
        assert!(!shutdown.is_complete() && tail[..] == [2; 200]);
        drop(tail);
        assert!(shutdown.is_complete(), "{}", shutdown.report());
    }
}

#[test]
fn dropping_the_iterator_returns_the_other_buffers() {
    let (pool, cache) = (pool(), SkbCache::new(4).unwrap());
    let mut parts = SkBuff::from_buff(&cache, packet(&pool, 100, 3)).unwrap().into_bytes().unwrap();
    let first = parts.next().unwrap();
    drop(parts);
    assert_eq!((first.len(), pool.inflight().out), (100, 1));
}

#[test]
fn a_head_of_ordinary_memory_keeps_its_block() {
    let cache = SkbCache::new(1).unwrap();
    let packet = SkBuff::from_bytes(&cache, 0, b"ordinary").unwrap();
    let mut part = packet.into_bytes().unwrap().next().unwrap();
    part.advance(2);
    assert!(SkBuff::from_bytes(&cache, 0, b"").is_err());
    assert_eq!(part, &b"dinary"[..]);
    drop(part);
    assert!(SkBuff::from_bytes(&cache, 0, b"").is_ok());
}

#[test]
fn unreadable_memory_is_refused() {
    let memory = DeviceMemory::new("hbm0", 1 << 20, NodeId(0)).unwrap();
    let device = Pool::new(PoolParams::default(), memory).unwrap().bind();
    let cache = SkbCache::new(4).unwrap();
    let received = XdpBuff::received(device.alloc_page().unwrap(), 100).unwrap();
    let packet = SkBuff::from_buff(&cache, received).unwrap();
    assert_eq!(packet.into_bytes().err().unwrap().len(), 100);
    assert_eq!(device.inflight().out, 0);
}
