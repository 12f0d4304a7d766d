//! How long a polling thread that finds nothing goes on looking, and how it sleeps then.
//!
//! Look      a sleep and its wake-up take the thread some 5 to 15 µs of CPU time, however long it is. Looking
//!           pays only where the next packet comes sooner, so a thread has credit: a packet that comes while
//!           it looks adds what a sleep would have cost more than the looking did, and looking in vain takes
//!           away what it cost. Packets that come one by one are slept for at once; gaps within a stream
//!           never are.
//! Coalesce  packets that keep arriving one by one are taken several at one wake-up: see `coalescing`.

use std::time::{Duration, Instant};

use super::coalescing::Coalescing;

/// What a sleep costs, at least.
const SLEEP: Duration = Duration::from_micros(5);
/// The longest look.
const LONGEST: Duration = Duration::from_micros(10);
/// The most credit: a stream that pauses now and then stays one.
const MOST: Duration = Duration::from_micros(40);
/// What a thread does that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Look,
    /// Sleep until something comes.
    Sleep,
    /// Sleep so long, whatever comes.
    Coalesce(Duration),
}

/// What one thread has learnt of the gaps between its packets.
#[derive(Debug)]
pub(super) struct Idleness {
    credit: Duration,
    /// When the current run of empty rounds began.
    since: Option<Instant>,
    /// What it did then, at last; how long it had looked, and the packets that it had received by then.
    last: (Rest, Duration, u64),
    /// When the last sleep had ended, and the packets that had been received by then.
    woken: (Instant, u64),
    coalescing: Coalescing,
}

impl Idleness {
    /// `coalesce`: the longest coalescing sleep; zero: packets end every sleep.
    pub(super) fn new(coalesce: Duration) -> Self {
        let (last, woken) = ((Rest::Look, Duration::ZERO, 0), (Instant::now(), 0));
        Self { credit: MOST, since: None, last, woken, coalescing: Coalescing::new(coalesce) }
    }

    /// A round found nothing. `received` says how many packets there were in total.
    #[inline]
    pub(super) fn rest(&mut self, now: impl FnOnce() -> Instant, received: impl FnOnce() -> u64) -> Rest {
        if self.last.0 != Rest::Look {
            self.last.0 = Rest::Sleep; // what it slept for has not come
            return Rest::Sleep;
        }
        let now = now();
        let looked = now - *self.since.get_or_insert(now);
        if looked < self.credit.min(LONGEST) {
            return Rest::Look;
        }
        let rest = self.coalescing.nap().map_or(Rest::Sleep, Rest::Coalesce);
        self.last = (rest, looked, received());
        rest
    }

    /// A round found something.
    #[inline]
    pub(super) fn found(&mut self, now: impl FnOnce() -> Instant, received: impl FnOnce() -> u64) {
        if let Some(since) = self.since.take() {
            self.learn(since, now(), received);
        }
    }

    /// Something came, and nothing had since then.
    #[cold]
    fn learn(&mut self, since: Instant, now: Instant, received: impl FnOnce() -> u64) {
        let (rest, looked, before) = std::mem::replace(&mut self.last, (Rest::Look, Duration::ZERO, 0));
        let waited = now - since;
        if rest == Rest::Look {
            return self.count(waited, waited);
        }
        let received = received();
        let packets = received.saturating_sub(before).max(1);
        // Those that came during a sleep came one after the other.
        self.count(waited / u32::try_from(packets).unwrap_or(u32::MAX), looked);
        let woken = std::mem::replace(&mut self.woken, (now, received));
        let coalesced = matches!(rest, Rest::Coalesce(_));
        self.coalescing.slept(now - woken.0, received.saturating_sub(woken.1), coalesced);
    }

    fn count(&mut self, gap: Duration, looked: Duration) {
        let lost = if gap < SLEEP { Duration::ZERO } else { looked };
        self.credit = (self.credit + SLEEP.saturating_sub(gap)).saturating_sub(lost).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::engine::poll_loop::COALESCE;

    const ROUND: Duration = Duration::from_nanos(150);

    /// A thread, and senders, in time that the test makes.
    struct Simulated {
        idleness: Idleness,
        now: Instant,
        /// When packets arrive.
        due: VecDeque<Instant>,
        received: u64,
        /// Sleeps that packets ended, and others.
        sleeps: u32,
        coalesced: u32,
        looked: Duration,
    }

    impl Simulated {
        fn new() -> Self {
            Self::with_limit(COALESCE)
        }

        fn with_limit(limit: Duration) -> Self {
            let (idleness, now) = (Idleness::new(limit), Instant::now());
            let due = VecDeque::new();
            Self { idleness, now, due, received: 0, sleeps: 0, coalesced: 0, looked: Duration::ZERO }
        }

        fn forget(&mut self) {
            (self.sleeps, self.coalesced, self.looked) = (0, 0, Duration::ZERO);
        }

        /// So many packets, one each `gap`, whatever the thread does.
        fn packets(&mut self, number: u32, gap: Duration) {
            self.stream((0..number).map(|_| gap));
        }

        /// Packets so long after one another, whatever the thread does.
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

        /// So many answers. The senders wait for theirs, and send again so long after it. Says how long the
        /// answers took on average.
        fn answers(&mut self, senders: u32, number: u64, after: Duration) -> Duration {
            self.due.extend((1..=senders).map(|sender| self.now + after * sender / senders));
            let (start, before) = (self.now, self.received);
            while self.received - before < number {
                let answered = self.round();
                self.due.extend((0..answered).map(|_| self.now + after));
            }
            self.due.clear();
            (self.now - start) * senders / u32::try_from(self.received - before).unwrap()
        }

        /// A round, and the sleep after it. Says how many packets there were.
        fn round(&mut self) -> usize {
            self.now += ROUND;
            let arrived = self.due.iter().take_while(|&&due| due <= self.now).count();
            self.received += self.due.drain(..arrived).count() as u64;
            if arrived > 0 {
                self.idleness.found(|| self.now, || self.received);
                return arrived;
            }
            match self.idleness.rest(|| self.now, || self.received) {
                Rest::Look => self.looked += ROUND,
                Rest::Sleep => {
                    (self.now, self.sleeps) = (self.now.max(self.due[0]) + SLEEP, self.sleeps + 1);
                }
                Rest::Coalesce(nap) => {
                    (self.now, self.coalesced) = (self.now + nap + SLEEP, self.coalesced + 1)
                }
            }
            0
        }
    }

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn packets_far_apart_are_slept_for_at_once() {
        for gap in [150, 300, 1000] {
            let mut thread = Simulated::new();
            thread.packets(10, us(gap));
            assert!(thread.looked <= MOST + LONGEST, "{gap}: it learns within a few: {:?}", thread.looked);
            thread.forget();
            thread.packets(1000, us(gap));
            let did = (thread.sleeps, thread.coalesced, thread.looked);
            assert_eq!(did, (1000, 0, Duration::ZERO), "{gap}: and is late for none");
        }
    }

    #[test]
    fn a_stream_is_never_slept_for_also_if_it_pauses() {
        let mut thread = Simulated::new();
        for _ in 0..10 {
            thread.packets(100, us(1));
            assert_eq!(thread.sleeps, 0);
            thread.packets(1, us(1000));
            assert_eq!(thread.sleeps, 1, "for the pause alone");
            thread.forget();
        }
    }

    #[test]
    fn who_sleeps_learns_of_a_stream_by_what_came_meanwhile() {
        for before in [20, 100, 1000] {
            let mut thread = Simulated::new();
            thread.packets(40, us(before));
            thread.forget();
            thread.packets(1000, us(1));
            assert!(thread.sleeps + thread.coalesced <= 4, "{} {}", thread.sleeps, thread.coalesced);
        }
    }

    #[test]
    fn packets_that_keep_arriving_are_coalesced() {
        for gap in [20, 30, 50, 80, 100, 115] {
            let mut thread = Simulated::new();
            thread.packets(1000, us(gap));
            assert!(
                thread.sleeps < 50,
                "{gap}: {} sleeps, {} that coalesce",
                thread.sleeps,
                thread.coalesced
            );
            assert!((240..420).contains(&thread.coalesced), "{gap}: {}", thread.coalesced);
            thread.packets(2, us(1000));
            thread.forget();
            thread.packets(1, us(1000));
            assert_eq!((thread.sleeps, thread.coalesced), (1, 0), "the first after a silence is not late");
        }
    }

    #[test]
    fn a_longer_limit_coalesces_packets_that_are_further_apart() {
        for gap in [150, 200, 300, 390] {
            let mut thread = Simulated::with_limit(us(1000));
            thread.packets(1000, us(gap));
            assert!(
                thread.sleeps < 50,
                "{gap}: {} sleeps, {} that coalesce",
                thread.sleeps,
                thread.coalesced
            );
            thread.packets(2, us(5000));
            thread.forget();
            thread.packets(1, us(5000));
            assert_eq!((thread.sleeps, thread.coalesced), (1, 0), "the first after a silence is not late");
        }
    }

    /// Of packets whose senders do not know of each other, the gaps are of all lengths.
    #[test]
    fn packets_of_many_senders_are_coalesced() {
        for (gap, limit) in [(20, 11_000), (50, 12_000), (100, 15_500)] {
            let (mut thread, mut random) = (Simulated::new(), 1u64);
            thread.stream((0..20_000).map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                us(gap).mul_f64(-((random >> 11) as f64 / (1u64 << 53) as f64).max(1e-9).ln())
            }));
            let sleeps = thread.sleeps + thread.coalesced;
            assert!(sleeps < limit, "{gap}: {} sleeps, {} that coalesce", thread.sleeps, thread.coalesced);
        }
    }

    /// A sender that waits for each answer, beside a stream that keeps the pace. Says how many packets of its
    /// own came a second.
    fn beside_a_stream(limit: Duration, stream: u64, after: Duration) -> f64 {
        let mut thread = Simulated::with_limit(limit);
        let start = thread.now;
        let (mut next, mut own, mut answered) = (start, start, 0);
        while thread.now < start + Duration::from_secs(2) {
            while next <= thread.now + us(2 * stream) {
                next += us(stream);
                thread.due.push_back(next);
            }
            if !thread.due.contains(&own) {
                let sent = (thread.now + after - start).as_micros() as u64;
                own = start + us(sent) + Duration::from_nanos(1); // none of the stream's comes at that time
                thread.due.push_back(own);
                thread.due.make_contiguous().sort_unstable();
            }
            thread.round();
            answered += u32::from(!thread.due.contains(&own));
        }
        f64::from(answered) / 2.0
    }

    #[test]
    fn who_waits_for_an_answer_beside_a_stream_loses_little() {
        let pairs = [(25, 67), (30, 53), (40, 103), (50, 97), (50, 127), (50, 217), (55, 97), (60, 101)];
        let slow = [(80, 103), (80, 197), (85, 151), (100, 307), (110, 263)];
        for (stream, after) in pairs.into_iter().chain(slow) {
            let [coalesces, at_once] =
                [COALESCE, Duration::ZERO].map(|limit| beside_a_stream(limit, stream, us(after)));
            let lost = 1.0 - coalesces / at_once;
            assert!(lost < 0.15, "{stream} µs, {after} µs: {at_once} a second, and {coalesces}");
        }
    }

    #[test]
    fn who_waits_for_an_answer_is_seldom_late() {
        for gap in [7, 20, 50, 90, 100, 200] {
            let mut thread = Simulated::new();
            thread.answers(1, 1000, us(gap));
            assert!(thread.coalesced <= 8, "{gap}: {}", thread.coalesced);
        }
    }

    #[test]
    fn senders_that_wait_for_answers_hardly_lose() {
        for senders in [2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32] {
            for after in [10, 20, 40, 80, 120, 300, 1000] {
                let (mut thread, mut other) = (Simulated::new(), Simulated::new());
                other.idleness = Idleness::new(Duration::ZERO);
                let [coalesced, at_once] =
                    [&mut thread, &mut other].map(|thread| thread.answers(senders, 20_000, us(after)));
                let lost = coalesced.as_secs_f64() / at_once.as_secs_f64() - 1.0;
                assert!(lost < 0.05, "{senders} senders, {after} µs: {at_once:?} and {coalesced:?}");
            }
        }
    }
}
