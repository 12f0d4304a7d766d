//! The figures that are shown while it runs: one line a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::course::{Course, Sample};
use super::figures::{self, grouped};

/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(20);

/// Lets it run for so long, or until it is interrupted. Prints a line a second if it is asked to.
pub fn watch(course: &Course, warm: &Sample, seconds: u64, interrupted: &AtomicBool, lines: bool) {
    if lines {
        println!("{}", head());
    }
    let start = Instant::now();
    let mut before = Moment::default();
    for second in 1..=seconds {
        if !sleep_until(start + Duration::from_secs(second), interrupted) {
            return;
        }
        let now = Moment::of(course, start);
        if lines {
            println!("{}", line(second, &before, &now, warm));
        }
        before = now;
    }
}

/// Says whether it got there.
fn sleep_until(then: Instant, interrupted: &AtomicBool) -> bool {
    loop {
        let left = then.saturating_duration_since(Instant::now());
        if interrupted.load(Ordering::Relaxed) || left.is_zero() {
            return left.is_zero();
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// What is known at one time.
#[derive(Default)]
struct Moment {
    at: Duration,
    arrived: u64,
    sample: Sample,
}

impl Moment {
    fn of(course: &Course, start: Instant) -> Self {
        Self { at: start.elapsed(), arrived: course.arrived.load(Ordering::Relaxed), sample: course.sample() }
    }
}

fn head() -> String {
    format!(
        "Pages: in the cache and the ring they are idle, in lanes on their way home from\n\
         other threads, under rx and tx with the NICs, and held by the program or by whom\n\
         it passed them to.\n\n\
         {:>4} {:>10} {:>5} {:>6} {:>6} {:>5} {:>5} {:>5} {:>8} {:>5} {:>10}",
        "time", "packets/s", "cache", "lanes", "ring", "rx", "tx", "held", "recycled", "slow", "dropped/s"
    )
}

fn line(second: u64, before: &Moment, now: &Moment, warm: &Sample) -> String {
    let took = (now.at - before.at).as_secs_f64();
    let rate = |new: u64, old: u64| grouped((new.saturating_sub(old) as f64 / took) as u64);
    let places = figures::places(&now.sample);
    format!(
        "{second:>3}s {:>10} {:>5} {:>6} {:>6} {:>5} {:>5} {:>5} {:>7.2}% {:>5} {:>10}",
        rate(now.arrived, before.arrived),
        places.cache,
        places.lanes,
        places.ring,
        places.rx,
        places.tx,
        places.held,
        figures::recycled_percent(warm, &now.sample).unwrap_or(0.0),
        figures::slow(warm, &now.sample),
        rate(figures::dropped(&now.sample), figures::dropped(&before.sample)),
    )
}
