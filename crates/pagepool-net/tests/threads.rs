//! The in-memory NIC with its hardware on threads of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cable::Cable;
use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_net::{
    Device, DeviceExt, Egress, HandoffRx, HandoffTx, MemNic, MemNicParams, NicDomain, NicPort, PortThread,
    TxQueue, Wake, ZeroCopySocket, mem_nic,
};

/// The longest without any packet: nothing else is said of how fast they go.
const LIMIT: Duration = Duration::from_secs(60);

/// Packets for each queue; a sanitizer makes fewer do.
fn packets() -> usize {
    std::env::var("PAGEPOOL_PACKETS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

fn pool(arena: &Arc<Arena>, domain: &Arc<NicDomain>) -> Bound {
    let params = PoolParams { domains: vec![domain.clone()], wakeup: true, ..Default::default() };
    Pool::new(params, arena.clone()).expect("parameters in range").bind()
}

/// The bytes of a packet with this number: of many lengths, some of them of several buffers.
fn fill(bytes: &mut [u8], number: usize) {
    bytes.fill(number as u8);
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
}

fn length(number: usize) -> usize {
    if number % 64 == 63 { 5000 } else { 60 + number % 700 }
}

fn is_right(packet: &XdpBuff, number: usize) -> bool {
    let data = packet.data();
    let rest = |bytes: &[u8]| bytes.iter().all(|&byte| byte == number as u8);
    packet.len() == length(number)
        && data[..8] == (number as u64).to_le_bytes()
        && rest(&data[8..])
        && packet.frags().iter().all(|frag| rest(frag.data()))
}

/// Sends numbered packets out of one NIC, and checks what comes into it from the other: both at once.
fn exchange(mut nic: MemNic, pool: Bound, count: usize) -> MemNic {
    let (mut queue, mut done) = (TxQueue::with_capacity(64, 64), XdpFrameBulk::new());
    let mut came = Vec::with_capacity(64);
    let (mut next, mut expected, mut completed) = (0, 0, 0);
    let mut moved = Instant::now();
    while expected < count || completed < count {
        while queue.len() < 32
            && next < count
            && let Some(frame) = numbered(&pool, next)
        {
            queue.push(frame);
            next += 1;
        }
        let sent = nic.transmit(&mut queue);
        let got = nic.receive(&pool, &mut came, 64);
        for packet in came.drain(..) {
            assert!(is_right(&packet, expected), "packet {expected} is not what was sent");
            expected += 1;
        }
        let finished = nic.complete(&mut done, 64);
        completed += finished;
        done.flush();
        if sent + got + finished > 0 {
            moved = Instant::now();
            continue;
        }
        assert_ne!(nic.wait(&pool, Duration::from_millis(100)), Wake::Gone);
        assert!(moved.elapsed() < LIMIT, "{expected} of {count} came, {completed} were completed");
    }
    nic.close();
    assert_eq!(pool.inflight().out, 0, "all buffers returned");
    nic
}

fn numbered(pool: &Bound, number: usize) -> Option<XdpFrame> {
    let len = length(number);
    let mut bytes = [0; 5000];
    fill(&mut bytes[..len], number);
    let mut head = pool.alloc_page()?;
    let capacity = head.packet_capacity();
    let (first, rest) = bytes[..len].split_at(len.min(capacity));
    head.packet_mut()?[..first.len()].copy_from_slice(first);
    let mut packet = XdpBuff::received(head, first.len()).ok()?;
    if !rest.is_empty() {
        let mut more = pool.alloc_page()?;
        more.packet_mut()?[..rest.len()].copy_from_slice(rest);
        let offset = more.packet_offset();
        packet.add_frag(more, offset, rest.len()).ok()?;
    }
    Some(XdpFrame::from(packet))
}

#[test]
fn what_may_be_sent_may_be_sent() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    sent::<Box<dyn Device>>();
    sent::<MemNic>();
    sent::<NicPort>();
    sent::<Egress>();
    sent::<HandoffTx>();
    sent::<HandoffRx>();
    shared::<NicDomain>();
    shared::<ZeroCopySocket>();
}

#[test]
fn two_queues_exchange_packets_over_a_cable_on_a_thread() {
    let arena = Arena::new(ArenaParams { max_bytes: 32 << 20, ..Default::default() }).expect("32 MiB");
    let (left, right) = (NicDomain::new("left"), NicDomain::new("right"));
    let count = packets();
    let (mut cables, mut ends) = (Vec::new(), Vec::new());
    for queue in 0..2 {
        let params = |side| MemNicParams { name: format!("{side}{queue}"), ..Default::default() };
        let (one, a) = mem_nic(params("left"), left.clone()).expect("parameters in range");
        let (two, b) = mem_nic(params("right"), right.clone()).expect("parameters in range");
        cables.push(Cable::new(a, b));
        ends.extend([(one, left.clone()), (two, right.clone())]);
    }
    let wire = PortThread::new("wire", move || cables.iter_mut().map(Cable::step).sum::<usize>() > 0);
    let wire = wire.expect("a thread");
    let finished = Arc::new(AtomicUsize::new(0));
    let run = |(nic, domain): (MemNic, Arc<NicDomain>)| {
        let (arena, finished) = (arena.clone(), finished.clone());
        std::thread::spawn(move || {
            let nic = exchange(nic, pool(&arena, &domain), count);
            finished.fetch_add(1, Ordering::Relaxed);
            nic.stats()
        })
    };
    let threads: Vec<_> = ends.into_iter().map(run).collect();
    for thread in threads {
        let stats = thread.join().expect("an end of a cable panicked");
        assert_eq!((stats.rx_packets, stats.tx_packets), (count as u64, count as u64));
        let wrong = stats.rx_bad_descriptor + stats.rx_bad_length + stats.tx_bad_descriptor + stats.faults;
        assert_eq!(wrong, 0, "{stats:?}");
    }
    drop(wire);
    assert_eq!((left.faults() + right.faults(), finished.load(Ordering::Relaxed)), (0, 4));
    assert_eq!(arena.pages_out(), 0);
}

/// A driver that is closed while its hardware is busy, over and over: nobody writes what is somebody else's.
#[test]
fn a_driver_closes_at_any_moment() {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).expect("8 MiB");
    let domain = NicDomain::new("mem0");
    let pool = pool(&arena, &domain);
    for round in 0..100u8 {
        let (mut nic, mut port) = mem_nic(MemNicParams::default(), domain.clone()).expect("in range");
        let mut packets = Vec::with_capacity(64);
        nic.receive(&pool, &mut packets, 0);
        let wire = PortThread::new("wire", move || {
            port.step(|wire| (0..64).for_each(|_| drop_result(wire.deliver(&[0xaa; 1500])))).is_some()
        });
        for _ in 0..round {
            nic.receive(&pool, &mut packets, 64);
            assert!(packets.iter().all(|packet| packet.data() == [0xaa; 1500]));
            packets.clear();
        }
        nic.close();
        let mut pages: Vec<_> = (0..700).map_while(|_| pool.alloc_page()).collect();
        for page in &mut pages {
            page.bytes_mut().expect("the CPU reads it").fill(round);
        }
        assert!(pages.iter().all(|page| page.bytes().expect("the same").iter().all(|&byte| byte == round)));
        drop(wire);
    }
    assert_eq!(pool.inflight().out, 0);
}

fn drop_result(_: bool) {}
