//! Packets inside the poll and beyond it.

#![allow(clippy::unwrap_used)]

use pagepool::{AdjustError, Arena, ArenaParams, Bound, MAX_FRAGS, Pool, PoolParams, XdpBuff, XdpFrame};

fn pool(params: PoolParams) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
    Pool::new(params, arena).unwrap().bind()
}

fn with_rooms() -> Bound {
    pool(PoolParams { headroom: 256, max_len: 1514, tailroom: 320, colour: false, ..Default::default() })
}

/// A packet of `len` bytes in its first buffer and as many in each of `frags` further ones.
fn packet(pool: &Bound, len: usize, frags: usize) -> XdpBuff {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
    packet.data_mut().fill(1);
    for at in 0..frags {
        let mut buffer = pool.alloc_page().unwrap();
        buffer.bytes_mut().unwrap()[..len].fill(at as u8 + 2);
        packet.add_frag(buffer, 0, len).unwrap();
    }
    packet
}

#[test]
fn head_moves_within_headroom_and_header() {
    let pool = with_rooms();
    let mut packet = packet(&pool, 100, 0);
    assert_eq!(packet.headroom(), 256);
    assert_eq!(packet.adjust_head(-257), Err(AdjustError::NoRoom));
    assert_eq!(packet.adjust_head(-256), Ok(()));
    assert_eq!((packet.headroom(), packet.len()), (0, 356));
    assert_eq!(packet.adjust_head(356 - 13), Err(AdjustError::TooShort));
    assert_eq!(packet.adjust_head(356 - 14), Ok(()));
    assert_eq!(packet.adjust_head(isize::MIN), Err(AdjustError::NoRoom));
    assert_eq!(packet.adjust_head(isize::MAX), Err(AdjustError::TooShort));
    assert_eq!(packet.data(), [1; 14]);
}

#[test]
fn metadata_moves_with_the_head() {
    let pool = with_rooms();
    let mut packet = packet(&pool, 100, 0);
    assert_eq!(packet.adjust_meta(-3), Err(AdjustError::BadMeta));
    assert_eq!(packet.adjust_meta(-256), Err(AdjustError::BadMeta));
    assert_eq!(packet.adjust_meta(4), Err(AdjustError::NoRoom));
    packet.adjust_meta(-8).unwrap();
    packet.meta_mut().copy_from_slice(b"metadata");
    assert_eq!(packet.adjust_head(-249), Err(AdjustError::NoRoom), "the metadata needs its place");
    packet.adjust_head(-248).unwrap();
    assert_eq!((packet.meta(), packet.headroom()), (&b"metadata"[..], 0));
    packet.adjust_head(250).unwrap();
    assert_eq!(packet.meta(), b"metadata");
    packet.adjust_meta(8).unwrap();
    assert_eq!(packet.meta(), b"");
}

#[test]
fn tail_grows_by_zeroes_and_never_into_the_tailroom() {
    let pool = with_rooms();
    let mut packet = packet(&pool, 100, 0);
    let room = 4096 - 320 - 256 - 100;
    assert_eq!(packet.tailroom(), room);
    assert_eq!(packet.adjust_tail(room as isize + 1), Err(AdjustError::NoRoom));
    packet.adjust_tail(room as isize).unwrap();
    assert_eq!(packet.data()[100..], vec![0; room]);
    assert_eq!(packet.adjust_tail(-(packet.len() as isize - 13)), Err(AdjustError::TooShort));
    packet.adjust_tail(-(packet.len() as isize - 14)).unwrap();
    assert_eq!(packet.data(), [1; 14]);
}

#[test]
fn tail_of_a_jumbo_packet_drops_buffers_that_end_up_empty() {
    let pool = with_rooms();
    let mut packet = packet(&pool, 1000, 3);
    assert_eq!((packet.len(), packet.frags().len(), pool.inflight().out), (4000, 3, 4));
    packet.adjust_tail(96).unwrap();
    assert_eq!(packet.frags()[2].data()[1000..], [0; 96]);
    assert_eq!(packet.adjust_tail(4096), Err(AdjustError::NoRoom));
    packet.adjust_tail(-1096).unwrap();
    assert_eq!((packet.len(), packet.frags().len(), pool.inflight().out), (3000, 2, 3));
    packet.adjust_tail(-1500).unwrap();
    assert_eq!((packet.len(), packet.frags().len(), packet.frags()[0].len()), (1500, 1, 500));
    packet.adjust_tail(-1486).unwrap();
    assert_eq!((packet.len(), packet.has_frags(), pool.inflight().out), (14, false, 1));
    drop(packet);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_packet_has_at_most_eighteen_buffers() {
    let pool = with_rooms();
    let mut packet = packet(&pool, 500, MAX_FRAGS);
    let refused = packet.add_frag(pool.alloc_page().unwrap(), 0, 1).expect_err("17 are there");
    drop(refused);
    assert!(packet.add_frag(pool.alloc_page().unwrap(), 0, 0).is_err(), "no data");
    let frame = XdpFrame::from(packet);
    assert_eq!((frame.len(), frame.segment_count()), (9000, 18));
    let bytes: Vec<u8> = frame.segments().flat_map(|segment| segment.data().to_vec()).collect();
    assert!(bytes.chunks(500).enumerate().all(|(at, chunk)| chunk == [at as u8 + 1; 500]));
    let packet = frame.into_buff();
    assert_eq!((packet.len(), packet.frags().len()), (9000, 17));
    drop(packet);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn no_chain_left_gives_the_buffer_back() {
    let pool = pool(PoolParams { chains: 2, ..Default::default() });
    let [one, two] = [packet(&pool, 100, 2), packet(&pool, 100, 1)];
    let mut three = packet(&pool, 100, 0);
    let buffer = three.add_frag(pool.alloc_page().unwrap(), 0, 100).expect_err("both chains are taken");
    drop(XdpFrame::from(one));
    three.add_frag(buffer, 0, 100).unwrap();
    drop((two, three));
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn neighbouring_frags_become_one() {
    let pool = pool(PoolParams { order: 1, ..Default::default() });
    let mut packet = packet(&pool, 100, 0);
    let frags: Vec<_> = (0..4).map(|_| pool.alloc_frag(2048).unwrap()).collect();
    for (at, mut frag) in frags.into_iter().enumerate() {
        frag.bytes_mut().unwrap().fill(at as u8);
        packet.add_frag(frag, 0, 2048).unwrap();
    }
    assert_eq!((packet.frags().len(), packet.len()), (1, 100 + 8192));
    assert!(packet.frags()[0].data().chunks(2048).enumerate().all(|(at, part)| part == [at as u8; 2048]));
    drop(packet);
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn a_jumbo_frame_returns_from_another_thread() {
    let pool = with_rooms();
    for _ in 0..300 {
        let frame = XdpFrame::from(packet(&pool, 900, 9));
        std::thread::scope(|threads| {
            threads.spawn(move || drop(frame)).join().unwrap();
        });
    }
    assert_eq!(pool.inflight().out, 0);
}

#[test]
fn the_owner_keeps_at_most_a_quarter_of_the_chains() {
    let pool = pool(PoolParams { chains: 16, ..Default::default() });
    let chained = |pool: &Bound| packet(pool, 100, 1);
    for _ in 0..3 {
        let packets: Vec<XdpBuff> = (0..16).map(|_| chained(&pool)).collect();
        let mut one_more = packet(&pool, 100, 0);
        drop(one_more.add_frag(pool.alloc_page().unwrap(), 0, 100).expect_err("all 16 are taken"));
        drop(packets); // in the poll: four of them stay with the owner
    }
    let singles: Vec<(XdpBuff, pagepool::PageBuf)> =
        (0..16).map(|_| (packet(&pool, 100, 0), pool.alloc_page().unwrap())).collect();
    let elsewhere = move || {
        let joined = singles.into_iter().filter_map(|(mut packet, buffer)| {
            packet.add_frag(buffer, 0, 100).ok()?;
            Some(packet)
        });
        joined.collect::<Vec<XdpBuff>>().len()
    };
    assert_eq!(std::thread::spawn(elsewhere).join().unwrap(), 12);
    assert_eq!(pool.inflight().out, 0);
}
