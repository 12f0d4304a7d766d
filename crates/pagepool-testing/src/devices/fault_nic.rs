//! A device that injects faults.
//!
//! What   wraps any device. It drops, duplicates, reorders, corrupts or delays received packets, stalls
//!        completions, refuses to send, or dies. Each fault happens by chance or every n-th time; equal seeds
//!        give equal faults.
//!
//! No buffer is lost: a delayed buffer counts in `in_rx`, and comes later or returns to its pool with
//! `close`.

use std::collections::VecDeque;

use pagepool::{Bound, Error, PageBuf, XdpBuff, XdpFrameBulk};
use pagepool_net::{Armed, Device, DeviceDescription, DeviceInfo, DeviceStats, QueueState, TxQueue};

/// How often a fault happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chance {
    /// Never.
    #[default]
    Never,
    /// Every n-th time; 1 is always.
    Every(u32),
    /// At random, once in `n` times on average.
    OneIn(u32),
}

/// The faults of a [`FaultNic`]. `Default` has none.
#[derive(Clone, Debug)]
pub struct FaultParams {
    /// The seed of the random faults: equal seeds give equal faults. Not 0.
    pub seed: u64,
    /// Received packets that are dropped.
    pub drop: Chance,
    /// Received packets that arrive twice. The copy is in pages of the pool, if it has any.
    pub duplicate: Chance,
    /// Received packets that arrive after a later one, or after those of the next poll.
    pub reorder: Chance,
    /// Received packets with one bit flipped.
    pub corrupt: Chance,
    /// Received packets that are delayed.
    pub delay: Chance,
    /// The delay in polls, at least 1.
    pub delay_polls: u32,
    /// Calls of `complete` that return nothing.
    pub stall_completions: Chance,
    /// Calls of `transmit` that take nothing.
    pub refuse_transmits: Chance,
    /// Calls of `receive` in which the device dies.
    pub die: Chance,
}

impl Default for FaultParams {
    fn default() -> Self {
        Self {
            seed: 1,
            drop: Chance::Never,
            duplicate: Chance::Never,
            reorder: Chance::Never,
            corrupt: Chance::Never,
            delay: Chance::Never,
            delay_polls: 3,
            stall_completions: Chance::Never,
            refuse_transmits: Chance::Never,
            die: Chance::Never,
        }
    }
}

impl FaultParams {
    fn check(&self) -> Result<(), Error> {
        let zero = |field, must_be: &str| {
            Err(Error::Parameter { field, value: "0".into(), must_be: must_be.into() })
        };
        for (field, chance) in self.chances() {
            if matches!(chance, Chance::Every(0) | Chance::OneIn(0)) {
                return zero(field, "1 or more: use Chance::Never for no fault");
            }
        }
        match (self.seed, self.delay_polls) {
            (0, _) => zero("seed", "any other number"),
            (_, 0) => zero("delay_polls", "1 or more"),
            _ => Ok(()),
        }
    }

    /// In the order of [`FaultKind`].
    fn chances(&self) -> [(&'static str, Chance); 8] {
        [
            ("drop", self.drop),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("delay", self.delay),
            ("stall_completions", self.stall_completions),
            ("refuse_transmits", self.refuse_transmits),
            ("die", self.die),
        ]
    }
}

/// The faults of a [`FaultNic`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets overtaken by a later one.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets delayed.
    pub delayed: u64,
    /// Calls of `complete` that returned nothing.
    pub stalled: u64,
    /// Calls of `transmit` that took nothing.
    pub refused: u64,
    /// 1 if it died.
    pub died: u64,
}

#[derive(Clone, Copy, Debug)]
enum FaultKind {
    Drop,
    Duplicate,
    Reorder,
    Corrupt,
    Delay,
    Stall,
    Refuse,
    Die,
}

/// The chance of each fault, and how often it was checked.
#[derive(Debug)]
struct Dice {
    chances: [(Chance, u64); 8],
    random: u64,
}

impl Dice {
    /// Whether the fault happens this time; counts it if so.
    fn fall(&mut self, fault: FaultKind, count: &mut u64) -> bool {
        let (chance, asked) = &mut self.chances[fault as usize];
        *asked += 1;
        let falls = match *chance {
            Chance::Never => false,
            Chance::Every(n) => asked.is_multiple_of(n.into()),
            Chance::OneIn(n) => next(&mut self.random).is_multiple_of(n.into()),
        };
        *count += u64::from(falls);
        falls
    }
}

/// Marsaglia's xorshift64: never 0 from a state that is not 0.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

/// A device that wraps another one and injects faults.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::{Device, MemNicParams, NicDomain, mem_nic};
/// use pagepool_testing::{Chance, FaultNic, FaultParams};
/// let domain = NicDomain::new("mem0");
/// # let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { domains: vec![domain.clone()], ..Default::default() }, arena)?.bind();
/// let (nic, mut wire) = mem_nic(MemNicParams::default(), domain)?;
/// let mut nic = FaultNic::new(nic, FaultParams { drop: Chance::Every(3), ..Default::default() })?;
/// let mut packets = Vec::with_capacity(64);
/// nic.receive(&pool, &mut packets, 64); // the first buffers
/// for _ in 0..9 {
///     assert!(wire.deliver(&[7; 60]));
/// }
/// assert_eq!(nic.receive(&pool, &mut packets, 64), 6);
/// assert_eq!(nic.counts().dropped, 3);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct FaultNic<D> {
    inner: D,
    dice: Dice,
    delay_polls: u64,
    counts: FaultCounts,
    polls: u64,
    /// What the inner device returned in this poll.
    fresh: Vec<XdpBuff>,
    /// Packets to hand to the caller; `late` has those that wait for a later poll.
    ready: VecDeque<XdpBuff>,
    late: VecDeque<(u64, XdpBuff)>,
    /// Packets and bytes handed to the caller.
    rx: (u64, u64),
    closed_with: u64,
    dead: bool,
}

impl<D: Device> FaultNic<D> {
    /// Wraps a device.
    pub fn new(inner: D, params: FaultParams) -> Result<Self, Error> {
        params.check()?;
        Ok(Self {
            inner,
            dice: Dice { chances: params.chances().map(|(_, chance)| (chance, 0)), random: params.seed },
            delay_polls: params.delay_polls.into(),
            counts: FaultCounts::default(),
            polls: 0,
            fresh: Vec::with_capacity(64),
            ready: VecDeque::with_capacity(128),
            late: VecDeque::with_capacity(128),
            rx: (0, 0),
            closed_with: 0,
            dead: false,
        })
    }

    /// The faults so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// The wrapped device.
    pub fn inner(&mut self) -> &mut D {
        &mut self.inner
    }

    fn held(&self) -> u64 {
        let late = self.late.iter().map(|(_, packet)| packet);
        self.ready.iter().chain(late).map(|packet| 1 + packet.frags().len() as u64).sum()
    }

    /// Moves packets that waited for this poll to `ready`.
    fn release(&mut self) {
        while let Some(at) = self.late.iter().position(|(poll, _)| *poll <= self.polls)
            && let Some((_, packet)) = self.late.remove(at)
        {
            self.ready.push_back(packet);
        }
    }

    fn maltreat(&mut self, mut packet: XdpBuff, pool: &Bound) {
        let (dice, counts) = (&mut self.dice, &mut self.counts);
        if dice.fall(FaultKind::Drop, &mut counts.dropped) {
            return;
        }
        if dice.fall(FaultKind::Corrupt, &mut counts.corrupted) {
            flip_a_bit(packet.data_mut(), next(&mut dice.random));
        }
        let mut copied = 0;
        if dice.fall(FaultKind::Duplicate, &mut copied)
            && let Some(copy) = copy(&packet, pool)
        {
            counts.duplicated += 1;
            self.ready.push_back(copy);
        }
        if dice.fall(FaultKind::Delay, &mut counts.delayed) {
            return self.late.push_back((self.polls + self.delay_polls, packet));
        }
        if !dice.fall(FaultKind::Reorder, &mut counts.reordered) {
            return self.ready.push_back(packet);
        }
        match self.ready.pop_back() {
            Some(before) => self.ready.extend([packet, before]),
            None => self.late.push_back((self.polls + 1, packet)),
        }
    }
}

fn flip_a_bit(bytes: &mut [u8], random: u64) {
    if let Some(bit) = random.checked_rem(bytes.len() as u64 * 8) {
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// A copy of the packet in pages of the pool; `None` if the pool is empty or its pages are too small.
fn copy(packet: &XdpBuff, pool: &Bound) -> Option<XdpBuff> {
    let mut copy = XdpBuff::received(filled(pool, packet.data())?, packet.data().len()).ok()?;
    for frag in packet.frags() {
        let buffer = filled(pool, frag.data())?;
        let offset = buffer.packet_offset();
        copy.add_frag(buffer, offset, frag.len()).ok()?;
    }
    Some(copy)
}

fn filled(pool: &Bound, bytes: &[u8]) -> Option<PageBuf> {
    let mut buffer = pool.alloc_page()?;
    buffer.packet_mut()?.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(buffer)
}

impl<D: Device> Device for FaultNic<D> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        self.dead = self.dead || self.dice.fall(FaultKind::Die, &mut self.counts.died);
        if self.dead {
            return 0;
        }
        self.polls += 1;
        self.release();
        if into.capacity() == 0 {
            into.reserve_exact(budget.min(self.inner.info().rx_ring));
        }
        let room = budget.min(into.capacity() - into.len());
        let mut fresh = std::mem::take(&mut self.fresh);
        self.inner.receive(pool, &mut fresh, room.saturating_sub(self.ready.len()));
        fresh.drain(..).for_each(|packet| self.maltreat(packet, pool));
        self.fresh = fresh;
        let n = room.min(self.ready.len());
        for packet in self.ready.drain(..n) {
            self.rx = (self.rx.0 + 1, self.rx.1 + packet.len() as u64);
            into.push(packet);
        }
        n
    }

    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        if self.dead || self.dice.fall(FaultKind::Refuse, &mut self.counts.refused) {
            return 0;
        }
        self.inner.transmit(queue)
    }

    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        if self.dead || self.dice.fall(FaultKind::Stall, &mut self.counts.stalled) {
            return 0;
        }
        self.inner.complete(done, budget)
    }

    fn state(&self) -> QueueState {
        self.inner.state()
    }

    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        if self.dead {
            return Armed::Gone;
        }
        let waits = !self.ready.is_empty() || !self.late.is_empty();
        match self.inner.arm(pool) {
            Armed::Idle { .. } if waits => Armed::Ready, // its packets wait for polls
            armed => armed,
        }
    }

    fn stats(&self) -> DeviceStats {
        let inner = self.inner.stats();
        DeviceStats {
            rx_packets: self.rx.0,
            rx_bytes: self.rx.1,
            in_rx: inner.in_rx + self.held(),
            closed_with: inner.closed_with + self.closed_with,
            ..inner
        }
    }

    fn describe(&self) -> DeviceDescription {
        self.inner.describe()
    }

    fn close(&mut self) {
        self.closed_with += self.held();
        self.ready.clear();
        self.late.clear();
        self.inner.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_what_they_say() {
        let dice = |chance| Dice { chances: [(chance, 0); 8], random: 1 };
        let (mut third, mut count) = (dice(Chance::Every(3)), 0);
        let falls: Vec<_> = (0..7).map(|_| third.fall(FaultKind::Drop, &mut count)).collect();
        assert_eq!(falls, [false, false, true, false, false, true, false]);
        assert_eq!(count, 2);
        let mut rare = dice(Chance::OneIn(10));
        count = (0..10_000).filter(|_| rare.fall(FaultKind::Drop, &mut 0)).count() as u64;
        assert!((900..1100).contains(&count), "{count} of 10000, asked for one in ten");
    }

    #[test]
    fn faults_that_cannot_be_are_refused_by_name() {
        let text = |params: FaultParams| params.check().unwrap_err().to_string();
        let never = FaultParams { delay: Chance::Every(0), ..Default::default() };
        assert_eq!(text(never), "delay is 0, but must be 1 or more: use Chance::Never for no fault");
        assert!(text(FaultParams { seed: 0, ..Default::default() }).starts_with("seed is 0"));
        assert!(text(FaultParams { delay_polls: 0, ..Default::default() }).starts_with("delay_polls is 0"));
        assert!(FaultParams::default().check().is_ok());
    }

    #[test]
    fn a_flipped_bit_is_one_bit() {
        for random in 0..99 {
            let mut bytes = [0u8; 5];
            flip_a_bit(&mut bytes, random);
            assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        }
        flip_a_bit(&mut [], 7);
    }
}
