//! One look at all processes that publish.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use pagepool::{DeferredStats, Inflight};
use pagepool_watch::{EntryView, Life, PoolView, ProcessView, RunFolder, shown_path};

use crate::report::error::error_chain;
use crate::report::number::grouped;

#[derive(Clone, Debug)]
pub struct Observation {
    pub at: SystemTime,
    /// The time of the look on a monotonic clock.
    pub taken: Instant,
    pub folder: PathBuf,
    pub processes: Vec<ProcessView>,
    /// Errors of files that cannot be read, or only in part.
    pub errors: Vec<String>,
}

impl Observation {
    pub fn at(folder: &RunFolder) -> Self {
        let mut look = Self {
            at: SystemTime::now(),
            taken: Instant::now(),
            folder: folder.path().to_owned(),
            processes: Vec::new(),
            errors: Vec::new(),
        };
        for process in folder.processes() {
            match process {
                Ok(process) => {
                    look.errors.extend(not_read(&process));
                    look.processes.push(process);
                }
                Err(error) => look.errors.push(error_chain(&error)),
            }
        }
        look
    }

    pub fn process(&self, other: &ProcessView) -> Option<&ProcessView> {
        self.processes.iter().find(|process| process.file == other.file)
    }

    /// Finds a pool of a process of another look in this one.
    pub fn pool(&self, process: &ProcessView, other: &PoolView) -> Option<&PoolView> {
        let same = |pool: &&PoolView| (pool.id, pool.created) == (other.id, other.created);
        self.process(process)?.pools.iter().find(same)
    }

    /// The message if there are no processes.
    pub fn nobody(&self) -> String {
        let folder = shown_path(&self.folder);
        match self.errors.is_empty() {
            true => format!("No process publishes in {folder}."),
            false => format!("No process that can be read publishes in {folder}."),
        }
    }

    /// The file of a process, if another process has the same name and PID.
    pub fn namesake(&self, process: &ProcessView) -> Option<String> {
        let same = |other: &&ProcessView| (&other.name, other.pid) == (&process.name, process.pid);
        let file = || Some(shown_path(process.file.file_name()?.as_ref()));
        if self.processes.iter().filter(same).count() > 1 { file() } else { None }
    }

    pub fn ago(&self, then: SystemTime) -> String {
        spoken(self.at.duration_since(then).unwrap_or_default())
    }
}

/// The parts of a file that could not be read.
fn not_read(process: &ProcessView) -> Option<String> {
    let (file, count) = (shown_path(&process.file), process.not_read);
    (count > 0).then(|| {
        format!(
            "{file}: {} of its pools and entries could not be read: they are damaged, or change faster than \
             they can be read consistently",
            grouped(count)
        )
    })
}

/// The folder that this user's processes publish in.
pub fn folder() -> Result<RunFolder, String> {
    RunFolder::of_user().map_err(|error| error_chain(&error))
}

pub fn is_alive(process: &ProcessView) -> bool {
    process.life == Life::Alive
}

pub fn percent(of: f64) -> String {
    format!("{of:.2}")
}

/// Bytes for people, in at most six characters.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let unit = (n.max(1).ilog2() / 10) as usize;
    let of = n as f64 / (1_u64 << (10 * unit)) as f64;
    match unit {
        0 => format!("{n} B"),
        _ if of < 10.0 => format!("{of:.2}{}", UNITS[unit]),
        _ if of < 100.0 => format!("{of:.1}{}", UNITS[unit]),
        _ => format!("{of:.0}{}", UNITS[unit]),
    }
}

/// A time in its two largest units.
pub fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Where the pages of a pool are. Places without pages are left out, except "out".
pub fn places(inflight: &Inflight) -> String {
    let Inflight { cache, lanes, ring, frag, deferred, uncollected, out, .. } = *inflight;
    let inside = [
        ("cache", cache),
        ("lanes", lanes),
        ("ring", ring),
        ("fragment page", frag),
        ("deferred", deferred),
        ("uncollected", uncollected),
    ];
    let some = inside.iter().filter(|(_, pages)| *pages > 0);
    let mut all: Vec<_> = some.map(|(place, pages)| format!("{place} {}", grouped(*pages))).collect();
    all.push(format!("out {}", grouped(out)));
    all.join(", ")
}

/// The buffers of a pool that wait for packets at its device, of those that are out; at the last time that
/// the process published.
pub fn waiting_for_packets(process: &ProcessView, pool: &PoolView) -> Option<u64> {
    let below = process.entries.iter().filter(|entry| entry.pool_id() == Some(pool.id.into()));
    sum(below, "in_rx")
}

/// The buffers, of any pool, that devices were sending when the process last published.
pub fn being_sent(process: &ProcessView) -> Option<u64> {
    sum(process.entries.iter(), "in_tx")
}

/// The sum of a counter over all entries; `None` if no entry has it.
fn sum<'a>(entries: impl Iterator<Item = &'a EntryView>, name: &str) -> Option<u64> {
    let counters = entries.flat_map(|entry| &entry.counters).filter(|(counter, _)| counter == name);
    counters.map(|(_, value)| *value).reduce(u64::saturating_add)
}

/// Whether the deferred queue of a pool was ever used.
pub fn has_deferred(deferred: &DeferredStats) -> bool {
    *deferred != DeferredStats::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_six_characters_and_times_two_units() {
        let all = [0, 1023, 1024, 10 << 10, 1_048_575, 16 << 20, 3 << 30, u64::MAX].map(bytes);
        assert_eq!(all, ["0 B", "1023 B", "1.00K", "10.0K", "1024K", "16.0M", "3.00G", "16.0E"]);
        let times = [0, 59, 61, 3_661, 90_000].map(|seconds| spoken(Duration::from_secs(seconds)));
        assert_eq!(times, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn places_without_pages_are_left_out() {
        let mut inflight = Inflight::default();
        assert_eq!(places(&inflight), "out 0");
        (inflight.cache, inflight.uncollected, inflight.out) = (5, 7, 1_234);
        assert_eq!(places(&inflight), "cache 5, uncollected 7, out 1,234");
    }
}
