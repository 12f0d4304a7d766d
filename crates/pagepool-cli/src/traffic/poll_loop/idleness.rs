//! How long an idle polling thread keeps looking for packets, and how it sleeps after that.
//!
//! Look     A sleep and its wake-up cost the thread 5 to 15 µs of CPU time, however long it sleeps. Looking
//!          pays only if the next packet comes sooner. So a thread has credit: a packet found while looking
//!          adds the time by which a sleep costs more than the gap; looking in vain subtracts its time.
//!          Between packets that arrive one by one it sleeps at once; in gaps within a stream it does not
//!          sleep.
//! Bursts   A wake-up also costs the sender, if that is a CPU of this machine, as on a veth. So after a burst
//!          the thread looks longer: 1 µs for each of its packets. If even that is in vain, it loses credit.
//! Nap      with `--rx-usecs`, it first sleeps that long even if packets arrive, then until a packet arrives:
//!          one wake-up then takes several packets that arrived one by one.

use std::time::{Duration, Instant};

/// The least cost of a sleep.
const SLEEP: Duration = Duration::from_micros(5);
/// The longest time to look after a few packets.
const LONGEST: Duration = Duration::from_micros(10);
/// How long a thread polls after a burst, for each packet of it: at least `LONGEST`, at most `MOST`.
const PER_PACKET: Duration = Duration::from_micros(1);
/// The most credit, and the longest time to look: the kernel's bursts have up to 64 packets, and a stream that
/// pauses now and then remains a stream.
const MOST: Duration = Duration::from_micros(64);

/// What a thread does after an empty round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleAction {
    Poll,
    /// Sleep until a packet comes.
    Sleep,
    /// Sleep this long, even if packets come.
    Nap(Duration),
}

/// What a thread has learnt of the gaps between its packets.
#[derive(Debug)]
pub(super) struct Idleness {
    credit: Duration,
    /// When the current sequence of empty rounds began.
    since: Option<Instant>,
    /// How many packets it had received when the sequence began.
    before: u64,
    /// How long it polls in this sequence at most.
    longest: Duration,
    /// What it did last in this sequence, and how long it had polled.
    last: (IdleAction, Duration),
    /// How long it sleeps before packets can end a sleep.
    nap: Duration,
}

impl Idleness {
    /// `nap`: how long it sleeps before packets can end a sleep; zero: they end every sleep.
    pub(super) fn new(nap: Duration) -> Self {
        let last = (IdleAction::Poll, Duration::ZERO);
        Self { credit: MOST, since: None, before: 0, longest: LONGEST, last, nap }
    }

    /// To call after an empty round. `received` returns the total number of packets.
    #[inline]
    pub(super) fn rest(
        &mut self,
        now: impl FnOnce() -> Instant,
        received: impl FnOnce() -> u64,
    ) -> IdleAction {
        if self.last.0 != IdleAction::Poll {
            self.last.0 = IdleAction::Sleep; // nothing came during the sleep
            return IdleAction::Sleep;
        }
        let now = now();
        let looked = now - self.since.unwrap_or_else(|| self.begin(now, received()));
        if looked < self.credit.min(self.longest) {
            return IdleAction::Poll;
        }
        let rest = if self.nap.is_zero() { IdleAction::Sleep } else { IdleAction::Nap(self.nap) };
        self.last = (rest, looked);
        rest
    }

    /// Begins a sequence of empty rounds.
    fn begin(&mut self, now: Instant, received: u64) -> Instant {
        let burst = u32::try_from(received.saturating_sub(self.before)).unwrap_or(u32::MAX);
        self.longest = PER_PACKET.saturating_mul(burst).clamp(LONGEST, MOST);
        (self.since, self.before) = (Some(now), received);
        now
    }

    /// To call after a round that found something.
    #[inline]
    pub(super) fn found(&mut self, now: impl FnOnce() -> Instant, received: impl FnOnce() -> u64) {
        if let Some(since) = self.since.take() {
            self.learn(since, now(), received);
        }
    }

    /// Learns from what came after the empty rounds since then.
    #[cold]
    fn learn(&mut self, since: Instant, now: Instant, received: impl FnOnce() -> u64) {
        let (rest, looked) = std::mem::replace(&mut self.last, (IdleAction::Poll, Duration::ZERO));
        let waited = now - since;
        let packets = u32::try_from(received().saturating_sub(self.before)).unwrap_or(u32::MAX);
        let gap = waited / packets.max(1); // the packets came one after another
        let looked = if rest == IdleAction::Poll { waited } else { looked };
        let lost = match gap < SLEEP {
            // Even a longer look would not have found them.
            true if waited > self.longest => looked.saturating_sub(LONGEST),
            true => Duration::ZERO,
            false => looked,
        };
        self.credit = (self.credit + SLEEP.saturating_sub(gap)).saturating_sub(lost).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const ROUND: Duration = Duration::from_nanos(150);

    /// A thread, and senders, in simulated time.
    struct Simulated {
        idleness: Idleness,
        now: Instant,
        /// When packets arrive.
        due: VecDeque<Instant>,
        received: u64,
        /// Sleeps that packets ended, and naps.
        sleeps: u32,
        naps: u32,
        looked: Duration,
    }

    impl Simulated {
        fn new(nap: Duration) -> Self {
            let (idleness, now) = (Idleness::new(nap), Instant::now());
            let due = VecDeque::new();
            Self { idleness, now, due, received: 0, sleeps: 0, naps: 0, looked: Duration::ZERO }
        }

        fn forget(&mut self) {
            (self.sleeps, self.naps, self.looked) = (0, 0, Duration::ZERO);
        }

        /// This many packets, one each `gap`, whatever the thread does.
        fn packets(&mut self, number: u32, gap: Duration) {
            self.stream((0..number).map(|_| gap));
        }

        /// Packets with these gaps, whatever the thread does.
        fn stream(&mut self, gaps: impl Iterator<Item = Duration>) {
            let mut at = self.now;
            self.due.extend(gaps.map(|gap| {
                at += gap;
                at
            }));
            while !self.due.is_empty() {
                self.round();
            }
        }

        /// A round, and the sleep after it. Returns how many packets it found.
        fn round(&mut self) -> usize {
            self.now += ROUND;
            let arrived = self.due.iter().take_while(|&&due| due <= self.now).count();
            self.received += self.due.drain(..arrived).count() as u64;
            if arrived > 0 {
                self.idleness.found(|| self.now, || self.received);
                return arrived;
            }
            match self.idleness.rest(|| self.now, || self.received) {
                IdleAction::Poll => self.looked += ROUND,
                IdleAction::Sleep => {
                    (self.now, self.sleeps) = (self.now.max(self.due[0]) + SLEEP, self.sleeps + 1);
                }
                IdleAction::Nap(nap) => (self.now, self.naps) = (self.now + nap + SLEEP, self.naps + 1),
            }
            0
        }
    }

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn a_thread_sleeps_at_once_between_distant_packets() {
        for gap in [150, 300, 1000] {
            let mut thread = Simulated::new(Duration::ZERO);
            thread.packets(10, us(gap));
            assert!(thread.looked <= MOST + LONGEST, "{gap}: it learns within a few: {:?}", thread.looked);
            thread.forget();
            thread.packets(1000, us(gap));
            let did = (thread.sleeps, thread.naps, thread.looked);
            assert_eq!(did, (1000, 0, Duration::ZERO), "{gap}: and is late for none");
        }
    }

    #[test]
    fn a_thread_does_not_sleep_within_a_stream() {
        let mut thread = Simulated::new(Duration::ZERO);
        for _ in 0..10 {
            thread.packets(100, us(1));
            assert_eq!(thread.sleeps, 0);
            thread.packets(1, us(1000));
            assert_eq!(thread.sleeps, 1, "for the pause alone");
            thread.forget();
        }
    }

    /// Bursts of 64 packets, each `gap` after the one before.
    fn bursts(number: usize, gap: Duration) -> impl Iterator<Item = Duration> {
        (0..number).flat_map(move |_| (0..64).map(move |at| if at == 0 { gap } else { Duration::ZERO }))
    }

    #[test]
    fn a_thread_does_not_sleep_between_dense_bursts() {
        let mut thread = Simulated::new(Duration::ZERO);
        thread.stream(bursts(100, us(200)));
        thread.forget();
        thread.stream(bursts(100, us(30)));
        assert!(thread.sleeps <= 20, "{}", thread.sleeps);
        thread.forget();
        thread.stream(bursts(1000, us(60)));
        assert_eq!(thread.sleeps, 0);
    }

    #[test]
    fn a_thread_looks_briefly_between_distant_bursts() {
        for gap in [80, 200, 1000] {
            let mut thread = Simulated::new(Duration::ZERO);
            thread.stream(bursts(20, us(gap)));
            thread.forget();
            thread.stream(bursts(100, us(gap)));
            assert_eq!(thread.sleeps, 100, "{gap}");
            assert!(thread.looked <= 100 * (LONGEST + SLEEP + ROUND), "{gap}: {:?}", thread.looked);
        }
    }

    #[test]
    fn a_sleeping_thread_detects_a_stream() {
        for before in [20, 100, 1000] {
            let mut thread = Simulated::new(Duration::ZERO);
            thread.packets(40, us(before));
            thread.forget();
            thread.packets(1000, us(1));
            assert!(thread.sleeps <= 4, "{}", thread.sleeps);
        }
    }

    #[test]
    fn packets_that_keep_arriving_share_a_nap() {
        for gap in [20, 50, 100, 150] {
            let mut thread = Simulated::new(us(300));
            thread.packets(1000, us(gap));
            let most = 1000 * gap as u32 / 300 + 20;
            assert!(thread.sleeps <= 20, "{gap}: {} sleeps, {} naps", thread.sleeps, thread.naps);
            assert!(thread.naps <= most, "{gap}: {} naps", thread.naps);
        }
    }

    #[test]
    fn the_first_packet_after_a_silence_ends_a_sleep() {
        let mut thread = Simulated::new(us(300));
        thread.packets(10, us(5000));
        thread.forget();
        thread.packets(10, us(5000));
        assert_eq!((thread.sleeps, thread.naps), (10, 10), "a nap after each packet, then a sleep");
    }
}
