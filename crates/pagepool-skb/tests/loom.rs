//! Every interleaving of clones, merges and ends of packets over the real pool, within a bound on preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p pagepool-skb --profile loom --test loom`
//!
//! `LOOM_MAX_PREEMPTIONS` overrides the bound. See `crates/pagepool/tests/loom.rs`.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use loom::thread;
use pagepool::{Bound, XdpBuff};
use pagepool_skb::{SkBuff, SkbCache};

#[path = "../../pagepool/tests/loom/scene.rs"]
mod scene;

use scene::{explore, scene, small};

/// A packet of one page, in a cache of its own.
fn stack_packet(pool: &Bound, blocks: usize) -> (SkbCache, SkBuff) {
    let cache = SkbCache::new(blocks).unwrap();
    let packet =
        SkBuff::from_buff(&cache, XdpBuff::received(pool.alloc_page().unwrap(), 100).unwrap()).unwrap();
    (cache, packet)
}

#[test]
fn skb_the_last_of_two_clones_returns_the_page() {
    explore("skb/clones", 3, || {
        let (scene, pool) = scene(1, small(1, 1));
        let (cache, packet) = stack_packet(&pool, 1);
        let clone = packet.clone();
        let bytes = Arc::new(loom::cell::UnsafeCell::new(0u8));
        let theirs = bytes.clone();
        let reader = thread::spawn(move || {
            theirs.with(|_| ());
            drop(clone);
        });
        drop(packet);
        if let Some(again) = pool.alloc_page() {
            bytes.with_mut(|_| ()); // written again: every read must be over
            drop(again);
        }
        reader.join().unwrap();
        assert!(SkBuff::from_bytes(&cache, 0, b"").is_ok(), "the block has returned, once");
        drop(cache);
        scene.destroy(pool);
    });
}

#[test]
fn skb_is_written_when_the_other_clone_is_gone() {
    explore("skb/unique", 3, || {
        let (scene, pool) = scene(1, small(1, 1));
        let (cache, mut packet) = stack_packet(&pool, 1);
        let clone = packet.clone();
        let bytes = Arc::new(loom::cell::UnsafeCell::new(0u8));
        let theirs = bytes.clone();
        let reader = thread::spawn(move || {
            theirs.with(|_| ());
            drop(clone);
        });
        if packet.data_mut().is_some() {
            bytes.with_mut(|_| ());
        }
        reader.join().unwrap();
        assert!(packet.data_mut().is_some());
        drop((packet, cache));
        scene.destroy(pool);
    });
}

#[test]
fn skb_two_clones_get_blocks_of_their_own() {
    explore("skb/unclone", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let cache = SkbCache::new(3).unwrap();
        let mut one = SkBuff::with_capacity(&cache, 0, 0).unwrap();
        one.add_frag(pool.alloc_page().unwrap(), 0, 100).unwrap();
        let mut two = one.clone();
        let other = thread::spawn(move || {
            two.pull(10).unwrap();
            drop(two);
        });
        one.trim(50).unwrap();
        assert_eq!((one.len(), one.frags()[0].offset()), (50, 0));
        drop(one);
        other.join().unwrap();
        assert!(pool.alloc_page().is_some(), "the page has returned");
        drop(cache);
        scene.destroy(pool);
    });
}

#[test]
fn skb_a_merged_clone_and_its_source_end_at_once() {
    explore("skb/merged", 2, || {
        let (scene, pool) = scene(1, small(1, 1));
        let cache = SkbCache::new(2).unwrap();
        let [mut one, mut two] = [0, 1].map(|_| SkBuff::with_capacity(&cache, 0, 0).unwrap());
        one.add_frag(pool.alloc_page().unwrap(), 0, 1).unwrap(); // marks it for recycling
        one.trim(0).unwrap();
        two.add_frag(pool.alloc_page().unwrap(), 0, 1000).unwrap();
        one.try_coalesce(two.clone()).unwrap();
        let bytes = Arc::new(loom::cell::UnsafeCell::new(0u8));
        let theirs = bytes.clone();
        let other = thread::spawn(move || {
            theirs.with(|_| ());
            drop(one);
        });
        drop(two);
        if let Some(again) = pool.alloc_page() {
            bytes.with_mut(|_| ()); // written again: every read must be over
            drop(again);
        }
        other.join().unwrap();
        drop(cache);
        scene.destroy(pool);
    });
}

#[test]
fn skb_last_packets_against_the_end_of_their_cache() {
    explore("skb/end", 3, || {
        let cache = SkbCache::new(2).unwrap();
        let one = SkBuff::from_bytes(&cache, 0, b"one").unwrap();
        let two = SkBuff::from_bytes(&cache, 0, b"two").unwrap();
        let (first, second) = (thread::spawn(move || drop(one)), thread::spawn(move || drop(two)));
        drop(cache);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn skb_blocks_are_taken_while_their_cache_ends() {
    explore("skb/end/take", 3, || {
        let cache = SkbCache::new(2).unwrap();
        let mut one = SkBuff::from_bytes(&cache, 0, b"one").unwrap();
        let other = thread::spawn(move || {
            let rest = one.split(1);
            drop(one);
            assert!(rest.is_err() || rest.is_ok_and(|rest| rest.data() == b"ne"));
        });
        drop(cache);
        other.join().unwrap();
    });
}
