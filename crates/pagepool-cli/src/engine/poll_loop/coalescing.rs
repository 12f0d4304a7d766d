//! Coalesces packets that arrive one by one: the thread sleeps for a fixed time and takes several at one
//! wake-up, which takes as much CPU time as a hundred packets.
//!
//! Begin  when the score of short sleeps reaches 8, and packets are at most 120 µs apart on average. Then
//!        it sleeps three times as long as they are apart, from 50 to 300 µs.
//! Go on  while such sleeps bring what the pace before promised. A sender that waits for our answers falls
//!        behind that, for coalescing delays them: one with a packet on its way in the first sleep, one with
//!        several within a few. The thread then requires twice the score. A stream that kept its pace is
//!        granted some packets, so that one which is not even is coalesced, too.
//! End    also if much more comes than promised, or nothing for 500 µs. The first packet after that ends a
//!        sleep at once.
//!
//! The times are those of the default limit; 500 µs are longer with a longer one.

use std::time::Duration;

/// The longest coalescing sleep, unless the user wants another.
pub const COALESCE: Duration = Duration::from_micros(300);
/// The shortest.
const SHORTEST: Duration = Duration::from_micros(50);
/// No packet for so long is a silence; also of the longest sleep, which may be late.
const SILENCE: Duration = Duration::from_micros(500);
const SILENCE_OF_LONGEST: f64 = 5.0 / 3.0;
/// How many packets a coalescing sleep shall bring, and at least promise.
const SHARE: f64 = 3.0;
const LEAST: f64 = 2.5;
/// Packets of a sleep that still are few. More are a burst, whose sender may need them back soon.
const FEW: f64 = 2.0;
/// The score that starts coalescing, at first and at most.
const TRIES: [u32; 2] = [8, 1024];
/// Sleeps over which the pace is averaged.
const WINDOW: f64 = 32.0;
/// The part of what was promised that must come.
const KEPT: f64 = 0.875;
/// So many packets behind that, a stream has not kept its pace; so many before it, it is granted.
const BEHIND: f64 = 1.0;
const GRANTED: f64 = 8.0;
/// So many times what was promised are a burst.
const BURST: f64 = 3.0;

/// What one thread has learnt of senders that send packets one by one.
#[derive(Debug)]
pub(super) struct Coalescing {
    longest: Duration,
    silence: Duration,
    /// Score of short sleeps: +1 for one or two packets, -8 for more, and for a silence.
    few: u32,
    /// The score that starts coalescing. It doubles after each failure, up to 1,024; a surplus of 8 packets
    /// resets it to 8.
    tries: u32,
    /// Seconds and packets of those, of which older ones count less.
    pace: (f64, f64),
    /// The seconds between packets that a coalescing thread was promised, and the packets it is behind.
    promised: Option<(f64, f64)>,
}

impl Coalescing {
    /// None of its sleeps is longer than that.
    pub(super) fn new(longest: Duration) -> Self {
        let silence = SILENCE.max(longest.mul_f64(SILENCE_OF_LONGEST));
        Self { longest, silence, few: 0, tries: TRIES[0], pace: (0.0, 0.0), promised: None }
    }

    /// How long to sleep whatever comes, if at all.
    pub(super) fn nap(&self) -> Option<Duration> {
        let (gap, _) = self.promised?;
        let longest = self.longest.as_secs_f64();
        Some(Duration::from_secs_f64((SHARE * gap).clamp(SHORTEST.as_secs_f64().min(longest), longest)))
    }

    /// A sleep ended, of whatever kind, and so many packets came since the one before ended.
    pub(super) fn slept(&mut self, took: Duration, packets: u64) {
        let (took_long, took, packets) = (took > self.silence, took.as_secs_f64(), packets as f64);
        match self.promised {
            _ if took_long || packets == 0.0 => self.pause(),
            Some((gap, behind)) => self.judge(gap, behind, (took, packets)),
            None => self.count(took, packets),
        }
    }

    /// Packets ended a sleep, or came soon after it.
    fn count(&mut self, took: f64, packets: f64) {
        let aged = |sum: f64| sum - sum / WINDOW;
        self.pace = (aged(self.pace.0) + took, aged(self.pace.1) + packets);
        self.few = match packets > FEW {
            true => self.few.saturating_sub(TRIES[0]),
            false => self.tries.min(self.few + 1),
        };
        let gap = self.pace.0 / self.pace.1;
        if self.few >= self.tries && LEAST * gap <= self.longest.as_secs_f64() {
            self.promised = Some((gap, 0.0));
        }
    }

    /// So many packets came in a coalescing sleep, in so long.
    fn judge(&mut self, gap: f64, behind: f64, (took, packets): (f64, f64)) {
        let promised = took / gap;
        let behind = (behind + KEPT * promised - packets).max(-GRANTED);
        if behind > BEHIND {
            (self.few, self.tries) = (0, (2 * self.tries).min(TRIES[1]));
        } else if behind <= -GRANTED {
            self.tries = TRIES[0];
        }
        let goes_on = behind <= BEHIND && packets <= BURST * promised;
        if goes_on { self.promised = Some((gap, behind)) } else { self.pause() }
    }

    /// The pace is not what it was.
    fn pause(&mut self) {
        self.few = self.few.saturating_sub(TRIES[0]);
        (self.pace, self.promised) = ((0.0, 0.0), None);
    }
}
