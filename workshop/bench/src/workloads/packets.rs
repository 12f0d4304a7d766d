//! Packets through in-memory NICs: the cost of a pool for a driver, and of each return path.
//!
//! The polling thread steps the NICs by hand, unless a row says otherwise: times include both halves of the
//! NICs, and are for comparing rows. The NICs are created directly, not opened by name: `drop_preset` is no
//! method of `Device`, the second NIC has no pool, and figures would include a call through a table.

pub mod rings;
pub mod virtio;

use std::hint::{black_box, spin_loop};
use std::sync::Arc;

use crate::measure::counted::{Moves, Rule};
use crate::measure::workload::{Ready, Workload};
use crate::rivals::spsc;
use crate::workloads::pools;
use pagepool::{Bound, PoolParams, Provider, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_cli::report::error_chain;
use pagepool_net::{Device, MemNic, MemNicParams, NicDomain, NicPort, PortStep, TxQueue, mem_nic};

use super::owner::CACHE_ONLY;

/// NAPI's budget.
const BUDGET: usize = 64;
/// Polls of completed frames on their way to the second core.
const BULKS: usize = 16;
/// All pages return through the cache, none from the arena.
const IN_POLL: &[Rule] = CACHE_ONLY;
/// As [`IN_POLL`], but packets of three buffers give no exact total.
const IN_POLL_BY_THREE: &[Rule] =
    &[Rule(&["alloc_fast"], Moves::Share(1, 1)), Rule(&["recycle_cached"], Moves::Share(1, 1))];
const BY_RING: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::Share(1, 64)),
    Rule(&["recycle_ring"], Moves::Each),
];
const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::AtMost(1, 2)),
    Rule(&["recycle_ring"], Moves::Each),
    Rule(&["alloc_empty"], Moves::AtMost(1, 16)),
];

pub const TABLE: &[Workload] = &[
    Workload::new("drop_preset", drop_preset)
        .about("receive 60 bytes, look at the header, drop: a fixed array of buffers and no pool")
        .batch(BUDGET),
    Workload::new("drop_inpoll", || drop_inpoll(1514, 60))
        .about("receive 60 bytes from a pool, recycle in the poll, refill; alternately with drop_preset")
        .batch(BUDGET)
        .rules(IN_POLL)
        .beside(drop_preset),
    Workload::new("drop_inpoll_3000", || drop_inpoll(3000, 3000))
        .about("receive 3000 bytes from a pool, recycle in the poll, refill")
        .batch(BUDGET)
        .rules(IN_POLL)
        .weight(4),
    Workload::new("drop_inpoll_9000", || drop_inpoll(3000, 9000))
        .about("9000 bytes in three buffers, per buffer; alternately with drop_inpoll_3000")
        .batch(BUDGET)
        .rules(IN_POLL_BY_THREE)
        .beside(|| drop_inpoll(3000, 3000))
        .weight(4),
    Workload::new("redirect_local", || redirect(XdpFrameBulk::flush))
        .about("received from one NIC, sent by another, returned in bulk in the poll")
        .batch(BUDGET)
        .rules(IN_POLL),
    Workload::new("redirect_ring", || redirect(XdpFrameBulk::put_ring))
        .about("received, sent, returned one by one through the locked ring; alternately with redirect_local")
        .batch(BUDGET)
        .rules(BY_RING)
        .beside(|| redirect(XdpFrameBulk::flush)),
    Workload::new("redirect_remote", redirect_remote)
        .about("received from one NIC, sent by another, returned in bulk by the second core")
        .batch(BUDGET)
        .rules(BY_MESSAGE),
    Workload::new("frame_convert", frame_convert)
        .about("convert a page to an XdpBuff, an XdpFrame, an XdpBuff again, and drop it")
        .rules(IN_POLL),
    Workload::new("redirect_same_domain", redirect_same_domain)
        .about("sent one at a time by a NIC of the same domain: the page's device address is reused")
        .rules(IN_POLL),
    Workload::new("redirect_remap", redirect_remap)
        .about("sent one at a time by a NIC of another domain: mapped before, unmapped after each packet")
        .rules(IN_POLL)
        .beside(redirect_same_domain)
        .weight(4)
        .buffers_a_fault(4096), // the domain reuses no address: its table grows
];

/// Both halves, and the packets of a poll.
struct NicRig {
    domain: Arc<NicDomain>,
    nic: MemNic,
    port: NicPort,
    packets: Vec<XdpBuff>,
    bytes: Vec<u8>,
}

impl NicRig {
    fn new(name: &str, domain: Arc<NicDomain>, bytes: usize) -> Result<Self, String> {
        let params = MemNicParams { name: name.into(), ..MemNicParams::default() };
        let (nic, port) = mem_nic(params, domain.clone()).map_err(|error| error_chain(&error))?;
        let bytes = (0..=255).cycle().take(bytes).collect();
        Ok(Self { domain, nic, port, packets: Vec::with_capacity(BUDGET), bytes })
    }

    /// Packets from the wire.
    #[inline(always)]
    fn deliver(&mut self, packets: usize) {
        let bytes = &self.bytes;
        let all = |wire: &mut PortStep<'_>| (0..packets).all(|_| wire.deliver(bytes));
        assert_eq!(self.port.step(all), Some(true), "the ring has a buffer for every packet");
    }

    /// Takes what is sent.
    #[inline(always)]
    fn take(&mut self) {
        self.port.step(|wire| while wire.take(|packet| _ = black_box(packet[0])) {});
    }
}

/// Room for packets of `max_len` with XDP's headroom and tailroom, and a cache for a poll of packets of three
/// buffers.
fn packets_in(domain: &Arc<NicDomain>, max_len: usize) -> PoolParams {
    PoolParams { domains: vec![domain.clone()], max_len, cache_size: 512, refill: 64, ..pools::packets() }
}

/// A NIC with a pool of this arena, and a full receive ring.
fn rig(arena: Arc<dyn Provider>, max_len: usize, bytes: usize) -> Result<(NicRig, Bound), String> {
    let domain = NicDomain::new("mem0");
    let pool = pools::over(packets_in(&domain, max_len), arena)?;
    let mut rig = NicRig::new("mem0", domain, bytes)?;
    pools::fill(&pool, 1024);
    rig.nic.receive(&pool, &mut rig.packets, 0);
    Ok((rig, pool))
}

/// Two NICs in one domain, and the pool of the first.
fn two_nics() -> Result<(NicRig, NicRig, Bound), String> {
    let (from, pool) = rig(pools::arena(pools::PAGES)?, 1514, 60)?;
    let to = NicRig::new("mem1", from.domain.clone(), 0)?;
    Ok((from, to, pool))
}

fn look(packet: &[u8]) -> u64 {
    packet.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

fn drop_preset() -> Result<Ready, String> {
    let (mut rig, pool) = rig(pools::arena(pools::PAGES)?, 1514, 60)?;
    Ok(pools::one_core_over(pool, move |_, n| {
        let mut sum = 0;
        for _ in 0..n / BUDGET {
            rig.deliver(BUDGET);
            let got = rig.nic.look_in_place(BUDGET, |packet| sum ^= look(packet));
            assert_eq!(got, BUDGET);
        }
        black_box(sum);
    }))
}

/// `bytes`: of a packet; `max_len`: the room in a buffer.
fn drop_inpoll(max_len: usize, bytes: usize) -> Result<Ready, String> {
    let buffers = bytes.div_ceil(max_len);
    let (mut rig, pool) = rig(pools::arena(pools::PAGES)?, max_len, bytes)?;
    Ok(pools::one_core_over(pool, move |pool, n| {
        let (mut sum, mut left) = (0, n / buffers);
        while left > 0 {
            // As many buffers per poll, thus as many cache lines in use
            let now = left.min(BUDGET / buffers);
            left -= now;
            rig.deliver(now);
            let got = rig.nic.receive(pool, &mut rig.packets, BUDGET);
            assert_eq!(got, now);
            sum ^= rig.packets.iter().map(|packet| look(packet.data())).fold(0, |a, b| a ^ b);
            rig.packets.clear();
        }
        black_box(sum);
    }))
}

fn redirect(home: impl Fn(&mut XdpFrameBulk) + 'static) -> Result<Ready, String> {
    let (mut from, mut to, pool) = two_nics()?;
    let (mut queue, mut done) = (TxQueue::with_capacity(BUDGET, 0), XdpFrameBulk::new());
    Ok(pools::one_core_over(pool, move |pool, n| {
        for _ in 0..n / BUDGET {
            receive(&mut from, pool, &mut queue, BUDGET);
            send(&mut to, &mut queue, &mut done);
            home(&mut done);
        }
    }))
}

#[inline(always)]
fn receive(from: &mut NicRig, pool: &Bound, queue: &mut TxQueue, packets: usize) {
    from.deliver(packets);
    let got = from.nic.receive(pool, &mut from.packets, packets);
    assert_eq!(got, packets);
    queue.extend(from.packets.drain(..).map(XdpFrame::from));
}

/// Sends frames, and takes them back as completed.
#[inline(always)]
fn send(to: &mut NicRig, queue: &mut TxQueue, done: &mut XdpFrameBulk) {
    let frames = queue.len();
    assert_eq!(to.nic.transmit(queue), frames, "the ring is empty");
    to.take();
    assert_eq!(to.nic.complete(done, frames), frames, "the wire took them all");
}

/// The first core does the work of `redirect_local` except returning; the second core flushes completed
/// frames.
fn redirect_remote() -> Result<Ready, String> {
    let (mut from, mut to, pool) = two_nics()?;
    let counters = pools::counters_of(&pool);
    pools::fill(&pool, 2 * 1024);
    let (mut full_tx, mut full_rx) = spsc::ring::<Box<XdpFrameBulk>, 1>();
    let (mut empty_tx, mut empty_rx) = spsc::ring::<Box<XdpFrameBulk>, 1>();
    let mut bulks: Vec<Box<XdpFrameBulk>> = Vec::with_capacity(1);
    for _ in 0..BULKS {
        bulks.push(Box::default());
        empty_tx.push(&mut bulks);
    }
    let mut queue = TxQueue::with_capacity(BUDGET, 0);
    let produce = move |n| {
        for _ in 0..n / BUDGET {
            receive(&mut from, &pool, &mut queue, BUDGET);
            while !empty_rx.pop(&mut bulks) {
                spin_loop();
            }
            send(&mut to, &mut queue, &mut bulks[0]);
            full_tx.push(&mut bulks);
        }
    };
    let mut done = Vec::with_capacity(1);
    let consume = move |n| {
        for _ in 0..n / BUDGET {
            while !full_rx.pop(&mut done) {
                spin_loop();
            }
            done[0].flush();
            empty_tx.push(&mut done);
        }
    };
    Ok(Ready::two_cores(produce, consume).counting(counters))
}

fn frame_convert() -> Result<Ready, String> {
    pools::one_core(pools::packets(), |pool, n| {
        for _ in 0..n {
            let packet = XdpBuff::received(pools::page(pool), 60).expect("60 bytes fit");
            let frame = black_box(XdpFrame::from(packet));
            let packet = frame.into_buff();
            drop(black_box(packet));
        }
    })
}

fn redirect_same_domain() -> Result<Ready, String> {
    let (from, to, pool) = two_nics()?;
    Ok(one_at_a_time(from, to, pool, |send| send()))
}

fn redirect_remap() -> Result<Ready, String> {
    let arena = pools::arena(1024)?; // one region, thus one mapping
    let (from, pool) = rig(arena.clone(), 1514, 60)?;
    let to = NicRig::new("mem1", NicDomain::new("mem1"), 0)?;
    let there: Arc<dyn pagepool::DmaDomain> = to.domain.clone();
    Ok(one_at_a_time(from, to, pool, move |send| {
        let mapping = arena.area().attach(&there).expect("the table of the domain has room");
        send();
        arena.area().detach(&mapping);
    }))
}

/// `around` does what each packet needs before and after it is sent.
fn one_at_a_time(
    mut from: NicRig,
    mut to: NicRig,
    pool: Bound,
    around: impl Fn(&mut dyn FnMut()) + 'static,
) -> Ready {
    let (mut queue, mut done) = (TxQueue::with_capacity(1, 0), XdpFrameBulk::new());
    pools::one_core_over(pool, move |pool, n| {
        for _ in 0..n {
            receive(&mut from, pool, &mut queue, 1);
            around(&mut || send(&mut to, &mut queue, &mut done));
            done.flush();
        }
    })
}
