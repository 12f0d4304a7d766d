//! The folder of published files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use pagepool::published::DeadFile;
use pagepool::published::run_folder::{self, is_being_made, is_published};
use pagepool::{DeferredStats, Error, Stats};

use super::model::ProcessView;
use super::process;

/// The folder in which processes publish. It remembers each pool's counters, so that no counter falls, even
/// if the previous look came between two stores of a thread.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("pagepool-run-{}", std::process::id()));
/// use pagepool_watch::RunFolder;
/// for process in RunFolder::at(&folder).processes() {
///     match process {
///         Ok(process) => println!("{} ({}): {} pools", process.name, process.pid, process.pools.len()),
///         Err(error) => println!("{error}"), // a damaged file, or a file of somebody else
///     }
/// }
/// ```
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    reported: Mutex<BTreeMap<PoolKey, Reported>>,
}

/// Looks without a pool until it is forgotten; a single look may have failed.
const MOST_MISSED: u32 = 16;

/// Identifies a pool among all that were ever published.
type PoolKey = (PathBuf, SystemTime, u32);

/// The last counters of a pool, and the number of looks without it since.
#[derive(Debug, Default)]
struct Reported {
    stats: Stats,
    deferred: DeferredStats,
    missed: u32,
}

impl RunFolder {
    /// The user's folder: `$PAGEPOOL_RUN`, else `/run/pagepool` for root, else `$XDG_RUNTIME_DIR/pagepool`.
    /// It need not exist. Fails if there is none, or its path is not absolute.
    pub fn of_user() -> Result<Self, Error> {
        run_folder::of_user().map(Self::at)
    }

    /// Another folder.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), reported: Mutex::default() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processes that publish here, or did until they were killed, sorted by name and number. An error
    /// stands for a file that could not be read: damaged, of an unknown version, or of another user. A folder
    /// that others may write to gives one error. Stops no process and takes none of their locks.
    pub fn processes(&self) -> Vec<Result<ProcessView, Error>> {
        let files = match self.files(is_published) {
            Ok(files) => files,
            Err(error) => return vec![Err(error)],
        };
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.values_mut().for_each(|reported| reported.missed += 1);
        let mut seen: Vec<_> = files.iter().filter_map(|path| process::read(path).transpose()).collect();
        for process in seen.iter_mut().flatten() {
            never_lower(&mut reported, process);
        }
        reported.retain(|_, reported| reported.missed <= MOST_MISSED);
        let key = |process: &ProcessView| (process.name.clone(), process.pid, process.file.clone());
        seen.sort_by_cached_key(|seen| seen.as_ref().ok().map(key));
        seen
    }

    /// Removes the files of ended processes; returns their paths, and an error for each that could not be
    /// removed. Files that are locked stay, also by a child of a dead process; other files stay too. The
    /// outer error is for a folder that is unreadable, or that others may write to.
    pub fn clean(&self) -> Result<Vec<Result<PathBuf, Error>>, Error> {
        let mut files = self.files(is_published)?;
        files.extend(self.files(is_being_made)?);
        let removed = files.into_iter().filter_map(DeadFile::take).map(DeadFile::remove);
        Ok(removed.filter_map(Result::transpose).collect())
    }

    fn files(&self, of_kind: fn(&Path) -> bool) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries,
        };
        run_folder::check(&self.path)?;
        let remedy = || format!("{} must be readable", self.path.display());
        let entries = entries.map_err(Error::of_call("opendir", remedy))?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
        let paths = paths.map_err(Error::of_call("readdir", remedy))?;
        Ok(paths.into_iter().filter(|path| of_kind(path)).collect())
    }
}

/// Raises counters to at least their last values, and remembers the result.
fn never_lower(reported: &mut BTreeMap<PoolKey, Reported>, process: &mut ProcessView) {
    for pool in &mut process.pools {
        let key = (process.file.clone(), pool.created, pool.id);
        let reported = reported.entry(key).or_default();
        pool.stats.raise_to(&reported.stats);
        pool.deferred.raise_to(&reported.deferred);
        *reported = Reported { stats: pool.stats, deferred: pool.deferred, missed: 0 };
    }
}
