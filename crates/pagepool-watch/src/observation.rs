//! One look at all processes that publish.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use pagepool::published::shown_path;

use crate::published::model::{PoolView, ProcessView};
use crate::published::run_folder::RunFolder;
use crate::words::{error_chain, grouped};

/// One look at all processes that publish in a folder.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("pagepool-looked-{}", std::process::id()));
/// use pagepool_watch::{Observation, PoolMoved, RunFolder};
/// let folder = RunFolder::at(&folder);
/// let before = Observation::at(&folder);
/// // Some time later:
/// let now = Observation::at(&folder);
/// for process in &now.processes {
///     for pool in &process.pools {
///         if let Some(moved) = PoolMoved::between(&before, &now, process, pool) {
///             println!("{}: {:.0} allocations/s", pool.name, moved.per_second(moved.allocations()));
///         }
///     }
/// }
/// now.errors.iter().for_each(|error| println!("{error}"));
/// ```
#[derive(Clone, Debug)]
pub struct Observation {
    /// The time of the look.
    pub at: SystemTime,
    /// The same time on a monotonic clock.
    pub taken: Instant,
    /// The folder.
    pub folder: PathBuf,
    /// The processes, sorted by name and PID.
    pub processes: Vec<ProcessView>,
    /// Errors of files that cannot be read, or only in part.
    pub errors: Vec<String>,
}

impl Observation {
    /// Looks at a folder now.
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

    /// Finds a process of another look in this one.
    pub fn process(&self, other: &ProcessView) -> Option<&ProcessView> {
        self.processes.iter().find(|process| process.file == other.file)
    }

    /// Finds a pool of a process of another look in this one.
    pub fn pool(&self, process: &ProcessView, other: &PoolView) -> Option<&PoolView> {
        let same = |pool: &&PoolView| (pool.id, pool.created) == (other.id, other.created);
        self.process(process)?.pools.iter().find(same)
    }

    /// Finds a pool of another look in this one, with its process.
    pub(crate) fn both(&self, process: &ProcessView, pool: &PoolView) -> Option<(&ProcessView, &PoolView)> {
        Some((self.process(process)?, self.pool(process, pool)?))
    }

    /// The file of a process, if another process has the same name and PID.
    pub fn namesake(&self, process: &ProcessView) -> Option<String> {
        let same = |other: &&ProcessView| (&other.name, other.pid) == (&process.name, process.pid);
        let file = || Some(shown_path(process.file.file_name()?.as_ref()));
        if self.processes.iter().filter(same).count() > 1 { file() } else { None }
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
