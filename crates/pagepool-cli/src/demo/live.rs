//! The figures that are shown while it runs: one line a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::course::{Course, Sample};
use crate::engine::figures;
use crate::report::number::grouped;

/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(20);

/// How long it runs, and what is said meanwhile.
pub struct View<'a> {
    pub seconds: u64,
    /// Print a line a second.
    pub lines: bool,
    /// The user wants an end.
    pub interrupted: &'a AtomicBool,
}

/// A transfer whose bytes are shown too.
pub trait Bytes {
    /// Those that arrived.
    fn arrived(&self) -> u64;
    /// Whether there will be no more.
    fn is_over(&self) -> bool;
}

/// Lets it run for so long, or until it is interrupted or over. Prints a line a second if it is asked to.
pub fn watch(course: &Course, warm: &Sample, view: &View<'_>, bytes: Option<&dyn Bytes>) {
    if view.lines {
        println!("{}\n\n{}", LEGEND, row(&HEAD.map(str::to_owned), bytes.is_some()));
    }
    let is_over = || view.interrupted.load(Ordering::Relaxed) || bytes.is_some_and(Bytes::is_over);
    let start = Instant::now();
    let mut before = Moment::default();
    for second in 1..=view.seconds {
        if !sleep_until(start + Duration::from_secs(second), is_over) {
            return;
        }
        let now = Moment::of(course, start, bytes);
        if view.lines {
            println!("{}", row(&line(second, &before, &now, warm), bytes.is_some()));
        }
        before = now;
    }
}

/// Says whether it got there.
fn sleep_until(then: Instant, is_over: impl Fn() -> bool) -> bool {
    loop {
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over() {
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
    bytes: u64,
    sample: Sample,
}

impl Moment {
    fn of(course: &Course, start: Instant, bytes: Option<&dyn Bytes>) -> Self {
        Self {
            at: start.elapsed(),
            arrived: course.arrived.load(Ordering::Relaxed),
            bytes: bytes.map_or(0, Bytes::arrived),
            sample: course.sample(),
        }
    }
}

const LEGEND: &str = "\
Pages: in the cache and the ring they are idle, in lanes on their way home from
other threads, under rx and tx with the NICs, and held by the program or by whom
it passed them to.";

const COLUMNS: usize = 12;
/// The second one is shown where there is a transfer.
const HEAD: [&str; COLUMNS] = [
    "time",
    "Gbit/s",
    "packets/s",
    "cache",
    "lanes",
    "ring",
    "rx",
    "tx",
    "held",
    "recycled",
    "slow",
    "dropped/s",
];
/// Their widths: no line is longer than 80.
const WIDE: [usize; COLUMNS] = [4, 0, 10, 5, 6, 6, 5, 5, 5, 8, 5, 10];
const WITH_BYTES: [usize; COLUMNS] = [4, 6, 9, 5, 5, 5, 4, 4, 5, 8, 4, 9];

fn row(cells: &[String; COLUMNS], with_bytes: bool) -> String {
    let widths = if with_bytes { WITH_BYTES } else { WIDE };
    let shown = cells.iter().zip(widths).filter(|(_, width)| *width > 0);
    shown.map(|(cell, width)| format!("{cell:>width$}")).collect::<Vec<_>>().join(" ")
}

fn line(second: u64, before: &Moment, now: &Moment, warm: &Sample) -> [String; COLUMNS] {
    let took = (now.at - before.at).as_secs_f64();
    let rate = |new: u64, old: u64| grouped((new.saturating_sub(old) as f64 / took) as u64);
    let places = figures::places(&now.sample);
    [
        format!("{second}s"),
        format!("{:.2}", (now.bytes - before.bytes) as f64 * 8e-9 / took),
        rate(now.arrived, before.arrived),
        places.cache.to_string(),
        places.lanes.to_string(),
        places.ring.to_string(),
        places.rx.to_string(),
        places.tx.to_string(),
        places.held.to_string(),
        format!("{:.2}%", figures::recycled_percent(warm, &now.sample).unwrap_or(0.0)),
        figures::slow(warm, &now.sample).to_string(),
        rate(figures::dropped(&now.sample), figures::dropped(&before.sample)),
    ]
}
