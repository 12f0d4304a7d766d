//! Publishing: this process shows its pools to others.
//!
//! Who    any thread, once in a process, before the first pool: what was made before is not shown.
//! Cost   nothing per buffer: a pool is made in memory that others may read, and is used there as
//!        anywhere. A pool that is made or ends takes a short lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::home::registry::Registry;
use crate::home::thread;
use crate::observe::process::is_dead;
use crate::returns::schema::schema;
use crate::sys::published_layout::NAME_BYTES;
use crate::sys::published_memory::PublishedMemory;
use crate::sys::run_folder;

/// How the name of a published file ends.
pub(crate) const SUFFIX: &str = ".pagepool";

/// Files that a process may find in its way, of others with its name and number in other pid namespaces.
const MOST_NAMESAKES: u32 = 100;

/// This process shows its pools to others, until this is dropped: then its file goes. Pools that are in it
/// stay valid.
#[derive(Debug)]
pub struct Publication {
    memory: &'static PublishedMemory,
    path: PathBuf,
    pid: u32,
}

/// Shows the pools of this process, and what else it enters, to those who [observe](crate::observe):
/// counters, places of pages, parameters. They are in a file of this process's memory, in the folder
/// `$PAGEPOOL_RUN`, else `/run/pagepool` for root, else `$XDG_RUNTIME_DIR/pagepool`. The file outlives a
/// process that is killed, and then says what it had; the next that publishes with the same name removes
/// it.
///
/// `name` is what observers see: 1 to 64 of `A-Z a-z 0-9 - _ .`, the first no dot. Call this before the
/// first pool and arena: what is made earlier is not shown. A process publishes once.
///
/// Only the user who runs the process can read the file, for it has addresses in it. A child of `fork`
/// publishes nothing, whatever it does with the pools that were copied into it; one of raw `clone(2)` must
/// not touch them.
///
/// Errors: [`Error::Parameter`] for the name, a folder that others may write to, no folder, a limit of
/// file sizes (`RLIMIT_FSIZE`) below 16 MiB; [`Error::Busy`] the second time; [`Error::System`] for a call
/// that failed.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("pagepool-doc-{}", std::process::id()));
/// # // SAFETY: the example has one thread.
/// # unsafe { std::env::set_var("PAGEPOOL_RUN", &folder) };
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams, observe::RunFolder};
/// let publication = pagepool::publish("doc")?;
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();
/// let buffer = pool.alloc_page();
///
/// // Any process of the same user:
/// let processes = RunFolder::of_user()?.processes();
/// let seen = &processes[0].as_ref().unwrap().pools[0];
/// assert_eq!((seen.name.as_str(), seen.inflight.out, seen.stats.alloc_slow), ("rx0", 1, 1));
/// # drop((buffer, publication));
/// # std::fs::remove_dir(folder).unwrap();
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn publish(name: &str) -> Result<Publication, Error> {
    check_name(name)?;
    let claim = PublishedMemory::claim()?;
    let folder = run_folder::of_user()?;
    run_folder::make(&folder)?;
    remove_dead(&folder, name);
    let (path, file) = create(&folder, name)?;
    let made_before = Registry::process().len() as u64;
    let published = PublishedMemory::publish(claim, &file, name, &schema(), made_before);
    let memory = published.inspect_err(|_| drop(fs::remove_file(&path)))?;
    thread::show();
    Ok(Publication { memory, path, pid: std::process::id() })
}

impl Publication {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        // Not in a child of fork: the file is the parent's.
        if std::process::id() == self.pid {
            self.memory.close();
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.') {
        return Ok(());
    }
    let must_be = format!("1 to {NAME_BYTES} letters, digits, '-', '_' and '.', the first no '.'");
    Err(Error::parameter("name", format_args!("{name:?}"), must_be))
}

/// Removes what dead processes of this name left.
fn remove_dead(folder: &Path, name: &str) {
    let of_name = |file: &str| {
        let number = file.strip_suffix(SUFFIX)?.strip_prefix(name)?.strip_prefix('.')?;
        number.chars().all(|c| c.is_ascii_digit() || c == '-').then_some(())
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(of_name).is_some() && is_dead(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes a file that nobody else has, and locks it.
fn create(folder: &Path, name: &str) -> Result<(PathBuf, File), Error> {
    let pid = std::process::id();
    for namesake in 0..MOST_NAMESAKES {
        let number = if namesake == 0 { pid.to_string() } else { format!("{pid}-{namesake}") };
        let path = folder.join(format!("{name}.{number}{SUFFIX}"));
        let remedy = || format!("{} must be a folder in which this process may make files", folder.display());
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = match options {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            other => other.map_err(Error::of_call("open", remedy))?,
        };
        run_folder::lock(&file).map_err(Error::of_call("flock", remedy))?;
        // Somebody who cleans up may have taken the file for a dead one, until it was locked.
        let ours = file.metadata().map_err(Error::of_call("fstat", remedy))?;
        if fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == ours.ino()) {
            return Ok((path, file));
        }
    }
    let what = format!("{MOST_NAMESAKES} files of {name} and process {pid} are in the way: pagepool clean");
    Err(Error::Busy { what })
}
