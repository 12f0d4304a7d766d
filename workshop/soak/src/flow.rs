//! Measures whether frames flow both ways, and how soon after a disturbance.
//!
//! Outside disturbances it takes three maxima: the *silence*, without a frame of a direction; the *return*,
//! from the end of a disturbance to the first frame; and the *recovery*, from the end of a disturbance to
//! half the rate of the last calm second before it. The recovery includes the window of a rate, 20 ms; other
//! load lengthens it.

use std::collections::VecDeque;
use std::time::Duration;

const WINDOW: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);
/// The part of the usual rate that counts as recovered: rates vary when three processes share two cores.
const GOOD: f64 = 0.5;

/// Times count from the start.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// The looks of the last window, and one before it.
    recent: VecDeque<(Duration, [u64; 2])>,
    /// When a frame of each direction last arrived.
    moved: [Duration; 2],
    /// Frames per second in the last calm second, and the start of the current one.
    usual: [f64; 2],
    second: Option<(Duration, [u64; 2])>,
    /// When the last disturbance ended; `None` during one.
    calm: Option<Duration>,
    returning: [bool; 2],
    recovering: [bool; 2],
    pub returned: Duration,
    pub silence: Duration,
    pub recovery: Duration,
}

impl Flow {
    pub fn disturb(&mut self, now: Duration) {
        self.give_up(now);
        self.calm = None;
        self.second = None;
        self.returning = [false; 2];
        self.recovering = [false; 2];
    }

    pub fn calm(&mut self, now: Duration) {
        self.calm = Some(now);
        self.returning = [true; 2];
        self.recovering = [true; 2];
        self.recent.clear();
    }

    /// Counts directions that have not returned or recovered with the time until now.
    pub fn give_up(&mut self, now: Duration) {
        let took = self.calm.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        if self.returning.contains(&true) {
            self.returned = self.returned.max(took);
        }
        if self.recovering.contains(&true) {
            self.recovery = self.recovery.max(took);
        }
    }

    /// Takes the total of arrived frames in each direction.
    pub fn look(&mut self, now: Duration, arrived: [u64; 2]) {
        let before = self.recent.back().map(|(_, arrived)| *arrived);
        self.recent.push_back((now, arrived));
        while self.recent.get(1).is_some_and(|(then, _)| now - *then >= WINDOW) {
            self.recent.pop_front();
        }
        let Some(calm) = self.calm else { return };
        for way in 0..2 {
            let silent = now.saturating_sub(self.moved[way].max(calm));
            self.silence = self.silence.max(silent);
            if before.is_some_and(|before| arrived[way] > before[way]) {
                self.moved[way] = now;
                if std::mem::take(&mut self.returning[way]) {
                    self.returned = self.returned.max(now - calm);
                }
            }
            if self.recovering[way] && self.has_recovered(way) {
                self.recovering[way] = false;
                self.recovery = self.recovery.max(now - calm);
            }
        }
        if self.recovering == [false; 2] {
            self.learn(now, arrived);
        }
    }

    fn has_recovered(&self, way: usize) -> bool {
        let [Some((from, old)), Some((to, new))] = [self.recent.front(), self.recent.back()] else {
            return false;
        };
        let (took, moved) = (*to - *from, new[way] - old[way]);
        took >= WINDOW && moved > 0 && moved as f64 / took.as_secs_f64() >= GOOD * self.usual[way]
    }

    fn learn(&mut self, now: Duration, arrived: [u64; 2]) {
        let (since, old) = *self.second.get_or_insert((now, arrived));
        let took = now - since;
        if took >= SECOND {
            self.usual = [0, 1].map(|way| (arrived[way] - old[way]) as f64 / took.as_secs_f64());
            self.second = Some((now, arrived));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once per millisecond, at rates per millisecond.
    fn run(flow: &mut Flow, arrived: &mut [u64; 2], from: u64, to: u64, rates: [u64; 2]) {
        for ms in from..to {
            *arrived = [arrived[0] + rates[0], arrived[1] + rates[1]];
            flow.look(Duration::from_millis(ms), *arrived);
        }
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn a_disturbance_is_no_silence_and_what_follows_is_one() {
        let (mut flow, mut arrived) = (Flow::default(), [0; 2]);
        flow.calm(ms(0));
        run(&mut flow, &mut arrived, 1, 2000, [100, 50]);
        assert!(flow.silence <= ms(2) && flow.recovery <= ms(22), "{flow:?}");
        flow.disturb(ms(2000));
        run(&mut flow, &mut arrived, 2000, 3000, [0, 0]);
        flow.calm(ms(3000));
        run(&mut flow, &mut arrived, 3000, 3100, [100, 0]);
        run(&mut flow, &mut arrived, 3100, 3200, [100, 10]);
        assert!(flow.silence >= ms(100) && flow.silence <= ms(101), "{flow:?}");
        assert_eq!(flow.returned, ms(100), "the second way");
        assert!(flow.recovery <= ms(22), "the second way has not recovered: {flow:?}");
        run(&mut flow, &mut arrived, 3200, 3300, [100, 30]);
        assert!(flow.recovery > ms(200) && flow.recovery < ms(225), "{flow:?}");
    }

    #[test]
    fn what_never_recovers_took_that_long_at_least() {
        let (mut flow, mut arrived) = (Flow::default(), [0; 2]);
        flow.calm(ms(0));
        run(&mut flow, &mut arrived, 1, 1500, [100, 100]);
        flow.disturb(ms(1500));
        flow.calm(ms(1500));
        run(&mut flow, &mut arrived, 1500, 4000, [100, 1]);
        flow.give_up(ms(4000));
        assert_eq!((flow.recovery, flow.returned), (ms(2500), ms(2)));
        flow.disturb(ms(4000));
        flow.calm(ms(4000));
        run(&mut flow, &mut arrived, 4000, 7000, [100, 0]);
        flow.disturb(ms(7000));
        assert_eq!((flow.recovery, flow.returned), (ms(3000), ms(3000)));
    }
}
