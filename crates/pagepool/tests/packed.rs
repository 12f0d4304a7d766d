//! Buffers in 8 bytes: what comes out is what went in, each returns once, whatever it is and wherever.
#![allow(clippy::unwrap_used)]

use std::thread;

use pagepool::{Bound, PackedBuf, PageBuf, Pool, PoolParams, put_packed};
use pagepool_testing::PlainMemory;

fn pool_with(pages: usize, params: PoolParams) -> Bound {
    Pool::new(params.clone(), PlainMemory::new(pages, params.order).unwrap()).unwrap().bind()
}

fn pool(pages: usize) -> Bound {
    pool_with(pages, PoolParams::default())
}

#[test]
fn a_page_is_the_same_page_afterwards() {
    let pool = pool(4);
    let mut page = pool.alloc_page().unwrap();
    page.packet_mut().unwrap()[..3].copy_from_slice(b"syn");
    let (number, at) = (page.page(), page.as_ptr());
    let packed = page.pack().unwrap();
    assert_eq!(packed.packet().unwrap()[..3], *b"syn");
    let page = packed.unpack();
    assert_eq!((page.page(), page.as_ptr(), page.is_frag()), (number, at, false));
    assert_eq!(pool.inflight().out, 1);
    drop(page);
    assert_eq!((pool.inflight().out, pool.stats().recycle_cached), (0, 1));
}

#[test]
fn a_fragment_keeps_its_place_and_its_length_in_lines() {
    let pool = pool_with(4, PoolParams { order: 3, ..Default::default() });
    let frags: Vec<PageBuf> = [100, 2090, 8590, 64].map(|len| pool.alloc_frag(len).unwrap()).into();
    for frag in frags {
        let (page, offset, len) = (frag.page(), frag.offset(), frag.len());
        let frag = frag.pack().unwrap().unpack();
        assert_eq!((frag.page(), frag.offset(), frag.len()), (page, offset, len.next_multiple_of(64)));
        assert!(frag.is_frag());
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn what_does_not_fit_8_bytes_is_given_back() {
    let fine = pool_with(4, PoolParams { frag_align: 8, ..Default::default() });
    let frag = fine.alloc_frag(72).unwrap().pack().unwrap_err();
    assert_eq!(frag.len(), 72, "another one begins in its last line");
    let large = pool_with(1, PoolParams { order: 8, ..Default::default() });
    let most = large.alloc_frag(4095 * 64).unwrap();
    assert_eq!(most.pack().unwrap().unpack().len(), 4095 * 64);
    assert_eq!(large.alloc_frag(4095 * 64 + 1).unwrap().pack().unwrap_err().len(), 4095 * 64 + 1);
}

#[test]
fn a_page_with_a_reference_leaves_the_pool_as_ever() {
    let pool = pool(4);
    let mut page = pool.alloc_page().unwrap();
    let hold = page.page_ref();
    drop(page.pack().unwrap());
    assert_eq!((pool.stats().recycle_released_refcnt, pool.stats().release), (1, 1));
    drop(hold);
    let mut bulk = vec![pool.alloc_page().unwrap().pack().unwrap()];
    let mut page = pool.alloc_page().unwrap();
    let hold = page.page_ref();
    bulk.push(page.pack().unwrap());
    put_packed(&mut bulk);
    assert_eq!((pool.stats().recycle_released_refcnt, pool.stats().recycle_cached), (2, 1));
    drop(hold);
}

#[test]
fn dropped_elsewhere_it_takes_that_threads_lane() {
    let pool = pool(4);
    let packed = pool.alloc_page().unwrap().pack().unwrap();
    thread::scope(|threads| threads.spawn(move || drop(packed)).join().unwrap());
    assert_eq!((pool.stats().recycle_ring, pool.inflight().out), (1, 0));
}

#[test]
fn bursts_of_one_or_many_pools_return_from_any_thread() {
    for elsewhere in [false, true] {
        let pools = [pool(256), pool_with(64, PoolParams { order: 3, ..Default::default() })];
        let mut plain: Vec<PackedBuf> = Vec::with_capacity(150);
        assert_eq!(pools[0].alloc_packed(&mut plain, 200), 150, "the vector does not grow");
        let mut mixed: Vec<PackedBuf> = Vec::new();
        for at in 0..100 {
            let pool = &pools[at % 2];
            let buffer = if at % 3 == 0 { pool.alloc_frag(500) } else { pool.alloc_page() };
            mixed.extend(buffer.map(|buffer| buffer.pack().unwrap()));
        }
        assert!(mixed.len() > 64);
        let mut put = || [&mut plain, &mut mixed].into_iter().for_each(put_packed);
        if elsewhere {
            thread::scope(|threads| threads.spawn(put).join().unwrap());
        } else {
            put();
        }
        assert_eq!((plain.len(), mixed.len(), plain.capacity()), (0, 0, 150));
        let ends = pools.map(|pool| pool.unbind().destroy());
        ends.iter().for_each(|end| assert!(end.is_complete(), "{elsewhere}: {}", end.report()));
    }
}

#[test]
fn alloc_packed_counts_as_alloc_bulk_does() {
    let [handles, packed] = [pool(100), pool(100)];
    let (mut some, mut others) = (Vec::with_capacity(128), Vec::with_capacity(128));
    for n in [32, 32, 64] {
        assert_eq!(handles.alloc_bulk(&mut some, n), packed.alloc_packed(&mut others, n));
    }
    assert_eq!((some.len(), others.len()), (100, 100));
    assert_eq!(handles.stats(), packed.stats());
    pagepool::put_bulk(&mut some);
    put_packed(&mut others);
    assert_eq!(handles.stats(), packed.stats());
}

#[test]
fn the_pool_lives_until_the_last_packed_buffer_is_dropped() {
    for _ in 0..3 {
        let pool = pool(4);
        let late = pool.alloc_page().unwrap().pack().unwrap();
        let end = pool.unbind().destroy();
        let other = self::pool(4);
        let others = other.alloc_page().unwrap().pack().unwrap();
        assert_eq!(others.unpack().pool_id(), other.alloc_page().unwrap().pool_id());
        assert!(!end.is_complete());
        assert_ne!(late.packet().unwrap().as_ptr(), std::ptr::null());
        drop(late);
        assert!(end.is_complete(), "{}", end.report());
    }
}
