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
//! Probe  after at most 256 coalescing sleeps, packets end 32. If they come faster then, somebody waits for
//!        answers beside a stream that keeps the pace, and the thread coalesces a quarter as often. One who
//!        sends seldom makes no difference that could be seen, and waits.
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
/// Coalescing sleeps before a probe, at most and at least; between them, so many by the score.
const NAPS: [u32; 2] = [256, 32];
const NAPS_OF_SCORE: u32 = 2048;
/// Sleeps of a probe.
const PROBE: u32 = 32;
/// Somebody waits for answers if packets come faster in a probe by that part, and by half the standard error.
const FASTER: f64 = 0.02;
/// Sleeps over which the pace is averaged.
const WINDOW: f64 = 32.0;
/// The part of what was promised that must come.
const KEPT: f64 = 0.875;
/// So many packets behind that, a stream has not kept its pace; so many before it, it is granted.
const BEHIND: f64 = 1.0;
const GRANTED: f64 = 8.0;
/// So many times what was promised are a burst.
const BURST: f64 = 3.0;

/// What came in some sleeps.
#[derive(Clone, Copy, Debug, Default)]
struct SleepSums {
    sleeps: f64,
    seconds: f64,
    packets: f64,
    /// Of the seconds between packets, for their spread.
    squares: f64,
}

impl SleepSums {
    /// One more sleep; older ones count less if there are many.
    fn add(&mut self, took: f64, packets: f64, window: f64) {
        let aged = |sum: f64| sum - sum / window;
        self.sleeps = aged(self.sleeps) + 1.0;
        self.seconds = aged(self.seconds) + took;
        self.packets = aged(self.packets) + packets;
        self.squares = aged(self.squares) + took * took / packets;
    }

    /// Seconds between packets.
    fn gap(&self) -> f64 {
        self.seconds / self.packets
    }

    /// By which part that may be wrong by chance.
    fn error(&self) -> f64 {
        let spread = self.squares / (self.packets * self.gap() * self.gap()) - 1.0;
        (spread.max(0.0) / self.sleeps).sqrt()
    }
}

/// What a coalescing thread was promised, and got.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// Seconds between packets.
    gap: f64,
    /// The packets that it is behind.
    behind: f64,
    naps: u32,
    got: SleepSums,
}

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
    /// What the score is at least: four times as high after a probe that found somebody who waits, half as
    /// high after another.
    waits: u32,
    /// Of the sleeps that the score is of.
    pace: SleepSums,
    promised: Option<Promise>,
    /// During a probe, the seconds between packets before it, when the thread coalesced.
    probed: Option<f64>,
}

impl Coalescing {
    /// None of its sleeps is longer than that.
    pub(super) fn new(longest: Duration) -> Self {
        let (silence, [tries, _]) = (SILENCE.max(longest.mul_f64(SILENCE_OF_LONGEST)), TRIES);
        let (pace, promised, probed) = (SleepSums::default(), None, None);
        Self { longest, silence, few: 0, tries, waits: tries, pace, promised, probed }
    }

    /// How long to sleep whatever comes, if at all.
    pub(super) fn nap(&self) -> Option<Duration> {
        let gap = self.promised?.gap;
        let longest = self.longest.as_secs_f64();
        Some(Duration::from_secs_f64((SHARE * gap).clamp(SHORTEST.as_secs_f64().min(longest), longest)))
    }

    /// A sleep ended, and so many packets came since the one before ended. `coalesced`: it was one that
    /// `nap` said, and they came before its end.
    pub(super) fn slept(&mut self, took: Duration, packets: u64, coalesced: bool) {
        let (silent, took, packets) = (took > self.silence, took.as_secs_f64(), packets as f64);
        match self.promised {
            _ if silent || packets == 0.0 => {
                if coalesced {
                    self.fewer(); // it was late, and would be again
                }
                self.pause();
            }
            Some(promise) => self.judge(promise, took, packets),
            None => self.count(took, packets),
        }
    }

    /// Packets ended a sleep, or came soon after it.
    fn count(&mut self, took: f64, packets: f64) {
        self.pace.add(took, packets, WINDOW);
        let enough = self.tries.max(self.waits).max(self.probed.map_or(0, |_| PROBE));
        self.few = match packets > FEW {
            true => self.few.saturating_sub(TRIES[0]),
            false => enough.min(self.few + 1),
        };
        let gap = self.pace.gap();
        if self.few >= enough && LEAST * gap <= self.longest.as_secs_f64() && !self.somebody_waits() {
            self.promised = Some(Promise { gap, behind: 0.0, naps: 0, got: SleepSums::default() });
        }
    }

    /// What a probe found that ends now, if one does.
    fn somebody_waits(&mut self) -> bool {
        let Some(before) = self.probed.take() else { return false };
        let waits = before / self.pace.gap() - 1.0 > FASTER.max(0.5 * self.pace.error());
        self.waits = if waits { (4 * self.waits).min(TRIES[1]) } else { (self.waits / 2).max(TRIES[0]) };
        if waits {
            self.few = 0;
        }
        waits
    }

    /// So many packets came in a coalescing sleep, in so long.
    fn judge(&mut self, mut promise: Promise, took: f64, packets: f64) {
        let promised = took / promise.gap;
        let behind = (promise.behind + KEPT * promised - packets).max(-GRANTED);
        if behind > BEHIND {
            self.fewer();
        } else if behind <= -GRANTED {
            self.tries = TRIES[0];
        }
        (promise.behind, promise.naps) = (behind, promise.naps + 1);
        promise.got.add(took, packets, f64::INFINITY);
        if behind > BEHIND || packets > BURST * promised {
            self.pause();
        } else if promise.naps >= (NAPS_OF_SCORE / self.waits).clamp(NAPS[1], NAPS[0]) {
            self.pause();
            (self.few, self.probed) = (0, Some(promise.got.gap()));
        } else {
            self.promised = Some(promise);
        }
    }

    /// Coalesces half as often.
    fn fewer(&mut self) {
        (self.few, self.tries) = (0, (2 * self.tries).min(TRIES[1]));
    }

    /// The pace is not what it was.
    fn pause(&mut self) {
        self.few = self.few.saturating_sub(TRIES[0]);
        (self.pace, self.promised, self.probed) = (SleepSums::default(), None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_whose_sleeps_are_late_coalesces_seldom() {
        let mut coalescing = Coalescing::new(COALESCE);
        for tries in [8, 16, 32, 64] {
            let mut alone = 0;
            while coalescing.nap().is_none() {
                coalescing.slept(Duration::from_micros(100), 1, false);
                alone += 1;
            }
            assert_eq!(alone, tries);
            coalescing.slept(Duration::from_micros(900), 9, true);
            assert_eq!(coalescing.nap(), None);
        }
    }
}
