//! How long a polling thread that finds nothing goes on looking, and how it sleeps then.
//!
//! Look   a sleep and its wake-up take the thread some 5 to 15 µs of CPU time, however long it is. Looking
//!        pays only where the next packet comes sooner, so a thread has credit: a packet that comes while it
//!        looks adds what a sleep would have cost more than the looking did, and looking in vain takes away
//!        what it cost. Packets that come one by one are slept for at once; gaps within a stream never are.
//! Gather where each sleep ends with one packet or two after at most 25 µs, several packets share a sleep of
//!        50 µs that none of them ends. The first packet after more silence than that ends a sleep as ever.
//!        A sleep that gathered nothing is one too many, for the sender may wait for us: the thread tries
//!        that half as often from then on.

use std::time::{Duration, Instant};

/// What a sleep costs, at least.
const SLEEP: Duration = Duration::from_micros(5);
/// The longest look.
const LONGEST: Duration = Duration::from_micros(10);
/// The most credit: a stream that pauses now and then stays one.
const MOST: Duration = Duration::from_micros(40);
/// The sleep that gathers packets.
const GATHER: Duration = Duration::from_micros(50);
/// Packets of a sleep that still are few.
const FEW: u64 = 2;
/// Packets of a sleep that gathers which are a burst, and no packets one by one: bursts end sleeps, for their
/// sender may need them back soon.
const MANY: u64 = 12;
/// Sleeps in a row that end with few packets before the thread gathers, at first and at most.
const TRIES: [u32; 2] = [8, 4096];

/// What a thread does that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Look,
    /// Sleep until something comes.
    Sleep,
    /// Sleep so long, whatever comes.
    Gather(Duration),
}

/// What one thread has learnt of the gaps between its packets.
#[derive(Debug)]
pub(super) struct Idleness {
    credit: Duration,
    /// When the first round found nothing, since one found something.
    since: Option<Instant>,
    /// What it did then, at last; how long it had looked, and the packets that it had received by then.
    last: (Rest, Duration, u64),
    /// Sleeps in a row that ended soon with few packets, and how many it takes.
    short: u32,
    tries: u32,
}

impl Idleness {
    pub(super) fn new() -> Self {
        let last = (Rest::Look, Duration::ZERO, 0);
        Self { credit: MOST, since: None, last, short: 0, tries: TRIES[0] }
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
        let rest = if self.short >= self.tries { Rest::Gather(GATHER) } else { Rest::Sleep };
        self.last = (rest, looked, received());
        rest
    }

    /// A round found something.
    #[inline]
    pub(super) fn found(&mut self, now: impl FnOnce() -> Instant, received: impl FnOnce() -> u64) {
        if let Some(since) = self.since.take() {
            self.learn(now() - since, received);
        }
    }

    /// Something came so long after the last.
    #[cold]
    fn learn(&mut self, waited: Duration, received: impl FnOnce() -> u64) {
        let (rest, looked, before) = std::mem::replace(&mut self.last, (Rest::Look, Duration::ZERO, 0));
        if rest == Rest::Look {
            return self.count(waited, waited);
        }
        let packets = received().saturating_sub(before).max(1);
        // Those that came during a sleep came one after the other.
        let gap = waited / u32::try_from(packets).unwrap_or(u32::MAX);
        self.count(gap, looked);
        match rest {
            Rest::Gather(_) if packets > MANY => self.short = 0,
            Rest::Gather(_) if packets > 1 => self.tries = TRIES[0],
            Rest::Gather(_) => (self.short, self.tries) = (0, (2 * self.tries).min(TRIES[1])),
            _ if packets <= FEW && gap <= GATHER / 2 => self.short += 1,
            _ => self.short = 0,
        }
    }

    fn count(&mut self, gap: Duration, looked: Duration) {
        let lost = if gap < SLEEP { Duration::ZERO } else { looked };
        self.credit = (self.credit + SLEEP.saturating_sub(gap)).saturating_sub(lost).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_nanos(150);

    /// A thread, and a sender, in time that the test makes.
    struct Simulated {
        idleness: Idleness,
        now: Instant,
        received: u64,
        sleeps: u32,
        gathered: u32,
        looked: Duration,
    }

    impl Simulated {
        fn new() -> Self {
            let (idleness, now) = (Idleness::new(), Instant::now());
            Self { idleness, now, received: 0, sleeps: 0, gathered: 0, looked: Duration::ZERO }
        }

        fn forget(&mut self) {
            (self.sleeps, self.gathered, self.looked) = (0, 0, Duration::ZERO);
        }

        /// So many packets, one each `gap`, whatever the thread does.
        fn packets(&mut self, number: u32, gap: Duration) {
            let mut due = self.now + gap;
            let last = self.now + number * gap;
            while due <= last {
                while self.now < due {
                    self.round(due);
                }
                while due <= self.now.min(last) {
                    (due, self.received) = (due + gap, self.received + 1);
                }
                self.now += ROUND;
                self.idleness.found(|| self.now, || self.received);
            }
        }

        /// A round in which nothing comes before `due`.
        fn round(&mut self, due: Instant) {
            self.now += ROUND;
            let rest = self.idleness.rest(|| self.now, || self.received);
            match rest {
                Rest::Look => self.looked += ROUND,
                Rest::Sleep => (self.now, self.sleeps) = (self.now.max(due) + SLEEP, self.sleeps + 1),
                Rest::Gather(nap) => (self.now, self.gathered) = (self.now + nap + SLEEP, self.gathered + 1),
            }
        }
    }

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn packets_one_by_one_are_slept_for_at_once() {
        for gap in [60, 100, 1000] {
            let mut thread = Simulated::new();
            thread.packets(10, us(gap));
            assert!(thread.looked <= MOST + LONGEST, "{gap}: it learns within a few: {:?}", thread.looked);
            thread.forget();
            thread.packets(1000, us(gap));
            let did = (thread.sleeps, thread.gathered, thread.looked);
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
        let mut thread = Simulated::new();
        thread.packets(20, us(100));
        thread.forget();
        thread.packets(1000, us(1));
        assert!(thread.sleeps <= 3, "{}", thread.sleeps);
    }

    #[test]
    fn packets_soon_after_one_another_share_sleeps() {
        let mut thread = Simulated::new();
        thread.packets(1000, us(20));
        assert!(thread.sleeps < 50, "{} sleeps, {} that gather", thread.sleeps, thread.gathered);
        assert!((300..500).contains(&thread.gathered), "{}", thread.gathered);
        thread.packets(2, us(1000));
        thread.forget();
        thread.packets(1, us(1000));
        assert_eq!((thread.sleeps, thread.gathered), (1, 0), "the first after a silence is not late");
    }

    #[test]
    fn who_waits_for_an_answer_is_seldom_late() {
        let mut thread = Simulated::new();
        for _ in 0..1000 {
            thread.packets(1, us(20)); // each is sent when the one before it was seen
        }
        assert!(thread.gathered <= 8, "{}", thread.gathered);
    }
}
