//! Packets through in-memory NICs: what a pool costs a driver, and which way home costs how much.
//!
//! The NICs are stepped by hand, on the thread that polls, unless a row says otherwise; so a row's time has
//! both halves of the NICs in it, and rows are for holding against each other.

use std::hint::{black_box, spin_loop};
use std::rc::Rc;
use std::sync::Arc;

use pagepool::{Bound, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_net::{Device, MemNic, MemNicParams, NicDomain, NicPort, PortStep, TxQueue, mem_nic};

use super::owner::CACHE_ONLY;
use crate::bench::measure::counted::{Moves, Rule};
use crate::bench::measure::workload::{Ready, Workload};
use crate::bench::rivals::spsc;
use crate::bench::workloads::pools;
use crate::report::error::error_chain;

/// Packets in a poll: NAPI's budget.
const BUDGET: usize = 64;
/// Polls of completed frames that are under way to the second core.
const BULKS: usize = 8;
/// Buffers of a packet of 9000 bytes over pages with room for 3000.
const JUMBO_BUFFERS: usize = 3;

/// All pages come home through the cache, and none is taken from the arena.
const IN_POLL: &[Rule] = CACHE_ONLY;
/// The same for packets of three buffers, of which there is no whole number.
const IN_POLL_BY_THREE: &[Rule] =
    &[Rule(&["alloc_fast"], Moves::Share(1, 1)), Rule(&["recycle_cached"], Moves::Share(1, 1))];
/// All come home through the locked ring.
const BY_RING: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::Share(1, 64)),
    Rule(&["recycle_ring"], Moves::Each),
];
/// All come home by message.
const BY_MESSAGE: &[Rule] = &[
    Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
    Rule(&["alloc_refill"], Moves::AtMost(1, 2)),
    Rule(&["recycle_ring"], Moves::Each),
    Rule(&["alloc_empty"], Moves::AtMost(1, 16)),
];

/// Receive and drop; redirect and come home in four ways; jumbo.
pub const TABLE: &[Workload] = &[
    Workload {
        name: "drop_preset",
        batch: BUDGET,
        about: "receive 60 bytes, look at the header, drop: a fixed array of buffers and no pool",
        ready: drop_preset,
        ..Workload::USUAL
    },
    Workload {
        name: "drop_inpoll",
        batch: BUDGET,
        about: "the same over a pool: received, recycled in the poll, refilled; in turns with drop_preset",
        rules: IN_POLL,
        beside: Some(drop_preset),
        ready: || drop_inpoll(1),
        ..Workload::USUAL
    },
    Workload {
        name: "drop_inpoll_3000",
        batch: BUDGET,
        about: "the same for packets of 3000 bytes",
        rules: IN_POLL,
        ready: || drop_inpoll_filled(1),
        weight: 4,
        ..Workload::USUAL
    },
    Workload {
        name: "drop_inpoll_9000",
        batch: BUDGET,
        about: "9000 bytes in three buffers, per buffer; in turns with drop_inpoll_3000",
        rules: IN_POLL_BY_THREE,
        beside: Some(|| drop_inpoll_filled(1)),
        ready: || drop_inpoll_filled(JUMBO_BUFFERS),
        weight: 4,
        ..Workload::USUAL
    },
    Workload {
        name: "redirect_local",
        batch: BUDGET,
        about: "received from one NIC, sent by another, returned in bulk in the poll",
        rules: IN_POLL,
        ready: || redirect(XdpFrameBulk::flush),
        ..Workload::USUAL
    },
    Workload {
        name: "redirect_ring",
        batch: BUDGET,
        about: "the same, returned one by one through the locked ring; in turns with redirect_local",
        rules: BY_RING,
        beside: Some(|| redirect(XdpFrameBulk::flush)),
        ready: || redirect(XdpFrameBulk::put_ring),
        ..Workload::USUAL
    },
    Workload {
        name: "redirect_remote",
        batch: BUDGET,
        about: "as redirect_local, but the second core returns what was completed, in bulk",
        rules: BY_MESSAGE,
        ready: redirect_remote,
        ..Workload::USUAL
    },
    Workload {
        name: "frame_convert",
        about: "convert a page to an XdpBuff, an XdpFrame, an XdpBuff again, and drop it",
        rules: IN_POLL,
        ready: frame_convert,
        ..Workload::USUAL
    },
    Workload {
        name: "redirect_same_domain",
        about: "sent one at a time by a NIC of the same domain: the page's device address is reused",
        rules: IN_POLL,
        ready: redirect_same_domain,
        ..Workload::USUAL
    },
    Workload {
        name: "redirect_remap",
        about: "the same by a NIC of another domain: mapped there before and unmapped after each packet",
        rules: IN_POLL,
        buffers_a_fault: 4096, // the domain gives no address twice, so its table grows
        beside: Some(redirect_same_domain),
        ready: redirect_remap,
        weight: 4,
        ..Workload::USUAL
    },
];

/// A NIC, both halves, and the packets of a poll.
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

    /// The wire brings so many packets.
    #[inline(always)]
    fn deliver(&mut self, packets: usize) {
        let bytes = &self.bytes;
        let all = |wire: &mut PortStep<'_>| (0..packets).all(|_| wire.deliver(bytes));
        assert_eq!(self.port.step(all), Some(true), "the ring has a buffer for every packet");
    }

    /// The wire takes what is to be sent.
    #[inline(always)]
    fn take(&mut self) {
        self.port.step(|wire| while wire.take(|packet| _ = black_box(packet[0])) {});
    }
}

/// XDP's headroom and tailroom, so much room for the packet, the domain of the NIC, and a cache for a poll of
/// packets of three buffers.
fn packets_in(domain: &Arc<NicDomain>, max_len: usize) -> PoolParams {
    PoolParams { domains: vec![domain.clone()], max_len, cache_size: 512, refill: 64, ..pools::packets() }
}

/// A NIC with a pool, whose ring is full of buffers.
fn rig(max_len: usize, bytes: usize) -> Result<(NicRig, Rc<Bound>), String> {
    let domain = NicDomain::new("mem0");
    let pool = pools::bound(packets_in(&domain, max_len))?;
    let mut rig = NicRig::new("mem0", domain, bytes)?;
    pools::fill(&pool, 1024);
    rig.nic.receive(&pool, &mut rig.packets, 0);
    Ok((rig, pool))
}

fn look(packet: &[u8]) -> u64 {
    packet.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

fn drop_preset() -> Result<Ready, String> {
    let (mut rig, pool) = rig(1514, 60)?;
    Ok(Ready::one_core(move |n| {
        let _keeps = &pool;
        let mut sum = 0;
        for _ in 0..n / BUDGET {
            rig.deliver(BUDGET);
            let got = rig.nic.look_in_place(BUDGET, |packet| sum ^= look(packet));
            assert_eq!(got, BUDGET);
        }
        black_box(sum);
    }))
}

fn drop_inpoll(buffers: usize) -> Result<Ready, String> {
    let (rig, pool) = rig(1514, 60)?;
    Ok(dropping(rig, pool, buffers))
}

/// Packets that fill so many buffers of 3000 bytes.
fn drop_inpoll_filled(buffers: usize) -> Result<Ready, String> {
    let (rig, pool) = rig(3000, buffers * 3000)?;
    Ok(dropping(rig, pool, buffers))
}

fn dropping(mut rig: NicRig, pool: Rc<Bound>, buffers: usize) -> Ready {
    let counters = pools::counters_of(&pool);
    let run = move |n: usize| {
        let (mut sum, mut left) = (0, n / buffers);
        while left > 0 {
            // As many buffers in a poll, so that as many lines are in use
            let now = left.min(BUDGET / buffers);
            left -= now;
            rig.deliver(now);
            let got = rig.nic.receive(&pool, &mut rig.packets, BUDGET);
            assert_eq!(got, now);
            sum ^= rig.packets.iter().map(|packet| look(packet.data())).fold(0, |a, b| a ^ b);
            rig.packets.clear();
        }
        black_box(sum);
    };
    Ready::one_core(run).counting(counters)
}

fn redirect(home: impl Fn(&mut XdpFrameBulk) + 'static) -> Result<Ready, String> {
    let (mut from, pool) = rig(1514, 60)?;
    let mut to = NicRig::new("mem1", from.domain.clone(), 0)?;
    let counters = pools::counters_of(&pool);
    let (mut queue, mut done) = (TxQueue::with_capacity(BUDGET, 0), XdpFrameBulk::new());
    let run = move |n| {
        for _ in 0..n / BUDGET {
            receive(&mut from, &pool, &mut queue, BUDGET);
            send(&mut to, &mut queue, &mut done);
            home(&mut done);
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

/// Packets from the wire, as frames to be sent.
#[inline(always)]
fn receive(from: &mut NicRig, pool: &Bound, queue: &mut TxQueue, packets: usize) {
    from.deliver(packets);
    let got = from.nic.receive(pool, &mut from.packets, packets);
    assert_eq!(got, packets);
    queue.extend(from.packets.drain(..).map(XdpFrame::from));
}

/// Frames onto the wire, and back as completed.
#[inline(always)]
fn send(to: &mut NicRig, queue: &mut TxQueue, done: &mut XdpFrameBulk) {
    let frames = queue.len();
    assert_eq!(to.nic.transmit(queue), frames, "the ring is empty");
    to.take();
    assert_eq!(to.nic.complete(done, frames), frames, "the wire took them all");
}

/// The first core does all that `redirect_local` does but the returning; the second core flushes what was
/// completed.
fn redirect_remote() -> Result<Ready, String> {
    let (mut from, pool) = rig(1514, 60)?;
    let mut to = NicRig::new("mem1", from.domain.clone(), 0)?;
    let counters = pools::counters_of(&pool);
    pools::fill(&pool, 2 * 1024);
    let (mut full_tx, mut full_rx) = spsc::ring::<Box<XdpFrameBulk>>();
    let (mut empty_tx, mut empty_rx) = spsc::ring::<Box<XdpFrameBulk>>();
    let mut bulks: Vec<Box<XdpFrameBulk>> = (0..BULKS).map(|_| Box::default()).collect();
    empty_tx.push(&mut bulks);
    let mut queue = TxQueue::with_capacity(BUDGET, 0);
    let produce = move |n| {
        for _ in 0..n / BUDGET {
            receive(&mut from, &pool, &mut queue, BUDGET);
            while !empty_rx.pop(&mut bulks, 1) {
                spin_loop();
            }
            send(&mut to, &mut queue, &mut bulks[0]);
            full_tx.push(&mut bulks);
        }
    };
    let mut done = Vec::with_capacity(1);
    let consume = move |n| {
        for _ in 0..n / BUDGET {
            while !full_rx.pop(&mut done, 1) {
                spin_loop();
            }
            done[0].flush();
            empty_tx.push(&mut done);
        }
    };
    Ok(Ready::two_cores(produce, consume).counting(counters))
}

fn frame_convert() -> Result<Ready, String> {
    let pool = pools::bound(pools::packets())?;
    let counters = pools::counters_of(&pool);
    drop(pools::page(&pool));
    let run = move |n| {
        for _ in 0..n {
            let packet = XdpBuff::received(pools::page(&pool), 60).expect("60 bytes fit");
            let frame = black_box(XdpFrame::from(packet));
            let packet = frame.into_buff().expect("its memory is a pool's");
            drop(black_box(packet));
        }
    };
    Ok(Ready::one_core(run).counting(counters))
}

fn redirect_same_domain() -> Result<Ready, String> {
    let (from, pool) = rig(1514, 60)?;
    let to = NicRig::new("mem1", from.domain.clone(), 0)?;
    Ok(one_at_a_time(from, to, pool, |send| send()))
}

fn redirect_remap() -> Result<Ready, String> {
    let domain = NicDomain::new("mem0");
    let arena = pools::arena(1024)?; // one region, so one mapping
    let pool = pools::over(packets_in(&domain, 1514), arena.clone())?;
    let mut from = NicRig::new("mem0", domain, 60)?;
    from.nic.receive(&pool, &mut from.packets, 0);
    let to = NicRig::new("mem1", NicDomain::new("mem1"), 0)?;
    let there: Arc<dyn pagepool::DmaDomain> = to.domain.clone();
    Ok(one_at_a_time(from, to, pool, move |send| {
        let mapping = arena.area().attach(&there).expect("the table of the domain has room");
        send();
        arena.area().detach(&mapping);
    }))
}

/// Redirects packets one by one; `around` does what each takes before and after it is sent.
fn one_at_a_time(
    mut from: NicRig,
    mut to: NicRig,
    pool: Rc<Bound>,
    around: impl Fn(&mut dyn FnMut()) + 'static,
) -> Ready {
    let counters = pools::counters_of(&pool);
    let (mut queue, mut done) = (TxQueue::with_capacity(1, 0), XdpFrameBulk::new());
    let run = move |n| {
        for _ in 0..n {
            receive(&mut from, &pool, &mut queue, 1);
            around(&mut || send(&mut to, &mut queue, &mut done));
            done.flush();
        }
    };
    Ready::one_core(run).counting(counters)
}
