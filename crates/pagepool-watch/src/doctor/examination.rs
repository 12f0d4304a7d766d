//! An examination: looks at processes at certain times, and at the machine at the first and the last one.

use std::fmt;
use std::time::{Duration, Instant};

use pagepool::published::shown_path;

use super::evidence::{LEAST_LOOKS, WARM_UP};
use super::report::DoctorReport;
use super::sources::Sources;
use crate::observation::Observation;
use crate::published::model::{Life, PoolView};
use crate::published::run_folder::RunFolder;

/// Looks at the pools; if they take too long, fewer, but at least [`LEAST_LOOKS`].
const LOOKS: u32 = 31;
/// The time from the end of the youngest pool's warm-up to the first look.
const NAP: Duration = Duration::from_millis(20);

/// Looks at processes, the kernel's page pools, interfaces, interrupts, CPUs and nodes for some time, and
/// finds what is wrong. It changes nothing, and stops no process.
///
/// The caller waits between the looks, however it likes. All calls must come from threads of one network
/// namespace: only interfaces of that one are examined.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("pagepool-examined-{}", std::process::id()));
/// use std::time::{Duration, Instant};
/// use pagepool_watch::RunFolder;
/// use pagepool_watch::doctor::Examination;
///
/// let folder = RunFolder::at(&folder); // as a rule RunFolder::of_user()?
/// # let seconds = Duration::from_millis(300);
/// # #[cfg(any())]
/// let seconds = Duration::from_secs(5);
/// let mut examination = Examination::begin(&folder, None, seconds)?;
/// while let Some(due) = examination.next_look() {
///     std::thread::sleep(due.saturating_duration_since(Instant::now()));
///     examination.look()?;
/// }
/// let report = examination.report();
/// for problem in &report.found {
///     println!("{}: {} ({})", problem.place, problem.rule.name, problem.rule.cost.name());
///     println!("  {}\n  {}\n  {}", problem.seen, problem.why, problem.fix);
/// }
/// report.not_judged.iter().for_each(|what| println!("not judged: {what}"));
/// # Ok::<(), pagepool_watch::doctor::NoProcess>(())
/// ```
pub struct Examination<'a> {
    folder: &'a RunFolder,
    of: Option<String>,
    time: Duration,
    stage: Stage,
}

enum Stage {
    /// Pools are being filled: the first look counts only after that.
    Filling { first: Observation, pools: usize, left: Duration, due: Instant },
    /// The first look was taken.
    Looking(Box<Looking>),
}

struct Looking {
    sources: Sources,
    start: Instant,
    /// When the last look was, from the start.
    last: Duration,
    looks: Vec<Observation>,
    /// When the next look is due, from the start; `None` after the last one.
    next: Option<Duration>,
}

impl<'a> Examination<'a> {
    /// Takes the first look at all processes of a folder, or at those with a name or PID. The last one is due
    /// after `time`; 5 s are usual. Fails if no process has that name or PID.
    pub fn begin(folder: &'a RunFolder, of: Option<&str>, time: Duration) -> Result<Self, NoProcess> {
        let of = of.map(str::to_owned);
        let first = chosen(folder, of.as_deref());
        let stage = match being_filled(&first) {
            Some((pools, left)) => Stage::Filling { first, pools, left, due: Instant::now() + left + NAP },
            None => Stage::Looking(Looking::begin(first, of.as_deref(), time)?.into()),
        };
        Ok(Self { folder, of, time, stage })
    }

    /// The number of pools that are still being filled, and for how much longer at most: a pool of a running
    /// process cannot be judged before it is 5 s old. `None` if there are none.
    pub fn being_filled(&self) -> Option<(usize, Duration)> {
        match self.stage {
            Stage::Filling { pools, left, .. } => Some((pools, left)),
            Stage::Looking(_) => None,
        }
    }

    /// When to look next; `None` after the last look. A look may come late.
    pub fn next_look(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Filling { due, .. } => Some(*due),
            Stage::Looking(looking) => Some(looking.start + looking.next?),
        }
    }

    /// Looks now. Fails if the processes of that name or PID ended before the looks that count.
    pub fn look(&mut self) -> Result<(), NoProcess> {
        let look = chosen(self.folder, self.of.as_deref());
        match &mut self.stage {
            Stage::Filling { .. } => {
                self.stage = Stage::Looking(Looking::begin(look, self.of.as_deref(), self.time)?.into());
            }
            Stage::Looking(looking) => looking.add(look, self.time),
        }
        Ok(())
    }

    /// Judges what changed from the first look until now. Before the last look, rules that need all looks
    /// find nothing.
    pub fn report(self) -> DoctorReport {
        let looking = match self.stage {
            Stage::Filling { first, .. } => Looking::of(first),
            Stage::Looking(looking) => *looking,
        };
        let seconds = looking.last.as_secs_f64();
        DoctorReport::of(looking.sources.evidence(&looking.looks, seconds, self.of.is_some()))
    }
}

impl fmt::Debug for Examination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, time, .. } = self;
        f.debug_struct("Examination").field("of", of).field("time", time).finish_non_exhaustive()
    }
}

impl Looking {
    /// Fails if the named process is not there.
    fn begin(first: Observation, of: Option<&str>, time: Duration) -> Result<Self, NoProcess> {
        if let Some(of) = of.filter(|_| first.processes.is_empty()) {
            return Err(NoProcess::of(of, first));
        }
        let mut looking = Self::of(first);
        looking.plan(time);
        Ok(looking)
    }

    fn of(first: Observation) -> Self {
        let sources = Sources::look(&first);
        Self { sources, start: Instant::now(), last: Duration::ZERO, looks: vec![first], next: None }
    }

    /// Adds a look. More follow if they were too few: on a busy machine, or with many pools, a look takes
    /// long.
    fn add(&mut self, look: Observation, time: Duration) {
        self.looks.push(look);
        self.last = self.start.elapsed();
        let is_last = self.next.is_none_or(|due| due == time && self.looks.len() >= LEAST_LOOKS);
        match is_last {
            true => self.next = None,
            false => self.plan(time),
        }
    }

    fn plan(&mut self, time: Duration) {
        self.next = Some((self.start.elapsed() + time / (LOOKS - 1)).min(time));
    }
}

/// No process of that name or PID publishes in the folder. The text also has the errors of files that could
/// not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoProcess(String);

impl NoProcess {
    fn of(name: &str, look: Observation) -> Self {
        let folder = shown_path(&look.folder);
        let nothing = format!("no process {name} publishes in {folder}: `pagepool list` shows those that do");
        Self([vec![nothing], look.errors].concat().join("; "))
    }
}

impl fmt::Display for NoProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoProcess {}

/// A look at the processes with this name or PID.
fn chosen(folder: &RunFolder, of: Option<&str>) -> Observation {
    let mut look = Observation::at(folder);
    if let Some(of) = of {
        look.processes.retain(|process| process.name == of || process.pid.to_string() == of);
    }
    look
}

/// How many pools are being filled, and for how much longer at most.
fn being_filled(look: &Observation) -> Option<(usize, Duration)> {
    let alive = look.processes.iter().filter(|process| process.life == Life::Alive);
    let pools = alive.flat_map(|process| &process.pools).filter(|pool| pool.detached.is_none());
    let age = |pool: &PoolView| look.at.duration_since(pool.created).unwrap_or_default();
    let left = pools.map(|pool| WARM_UP.saturating_sub(age(pool)));
    let left: Vec<_> = left.filter(|left| !left.is_zero()).collect();
    left.iter().max().map(|&most| (left.len(), most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_enough_however_long_they_take() {
        let folder = RunFolder::at("/a folder that is not");
        let mut examination = Examination::begin(&folder, None, Duration::ZERO).unwrap();
        while examination.next_look().is_some() {
            examination.look().unwrap();
        }
        let Stage::Looking(looking) = &examination.stage else { panic!("no pool is filled") };
        assert_eq!(looking.looks.len(), LEAST_LOOKS);
    }
}
