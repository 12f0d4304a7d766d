//! Packets as `bytes::Bytes`.

#![allow(clippy::unwrap_used)]

use pagepool::{DeviceMemory, MAX_FRAGS, NodeId, Pool, PoolParams, XdpBuff, XdpFrame};

use crate::filled_packet::{packet, pool};

#[test]
fn a_jumbo_frame_is_one_part_per_buffer() {
    let pool = pool();
    let packet = packet(&pool, 500, MAX_FRAGS);
    let first = packet.data().as_ptr();
    let parts: Vec<_> = XdpFrame::from(packet).into_bytes().unwrap().collect();
    assert_eq!((parts.len(), parts[0].as_ptr()), (18, first), "nothing is copied");
    assert!(parts.iter().enumerate().all(|(at, part)| part[..] == [at as u8 + 1; 500]));
    let half: Vec<_> = parts.iter().step_by(2).cloned().collect();
    drop(parts);
    assert_eq!(pool.inflight().out, 9);
    std::thread::scope(|threads| threads.spawn(move || drop(half)).join().unwrap());
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn dropping_the_iterator_returns_the_other_buffers() {
    let pool = pool();
    let mut parts = XdpFrame::from(packet(&pool, 100, 3)).into_bytes().unwrap();
    let first = parts.next().unwrap();
    drop(parts);
    assert_eq!((first.len(), pool.inflight().out), (100, 1));
    let empty = XdpFrame::from(packet(&pool, 0, 0)).into_bytes().unwrap();
    assert_eq!(empty.count(), 0);
}

#[test]
fn a_buffer_becomes_one_part_of_the_requested_range() {
    let pool = pool();
    let mut buffer = pool.alloc_page().unwrap();
    buffer.bytes_mut().unwrap()[100..200].fill(5);
    let start = buffer.as_ptr().unwrap();
    for (offset, len) in [(4096, 1), (0, 4097), (usize::MAX, 2)] {
        buffer = buffer.into_bytes(offset, len).unwrap_err();
    }
    let bytes = buffer.into_bytes(100, 100).unwrap();
    assert_eq!((bytes.as_ptr(), &bytes[..]), (start.wrapping_add(100).cast_const(), &[5; 100][..]));
    let end = bytes.slice(99..);
    drop(bytes);
    assert_eq!((end[0], pool.inflight().out), (5, 1));
    drop(end);
    assert_eq!(pool.inflight().out, 0);
    let frag = pool.alloc_frag(256).unwrap();
    let all = frag.into_bytes(0, 256).unwrap();
    drop(pool);
    assert_eq!(all.len(), 256, "it outlives its pool");
}

#[test]
fn unreadable_memory_is_refused() {
    let memory = DeviceMemory::new("hbm0", 1 << 20, NodeId(0)).unwrap();
    let device = Pool::new(PoolParams::default(), memory).unwrap().bind();
    let buffer = device.alloc_page().unwrap().into_bytes(0, 100).unwrap_err();
    let frame = XdpFrame::from(XdpBuff::received(buffer, 100).unwrap());
    assert_eq!(frame.into_bytes().err().unwrap().len(), 100);
    assert_eq!(device.inflight().out, 0);
}
