//! Publishing: this process shows its pools to others.
//!
//! Who    any thread, once per process, before the first pool: a pool never moves, so one on the heap cannot
//!        be shown.
//! Cost   at most one instruction per buffer: a published pool is made in memory that others can read, and is
//!        used as usual. Making or ending a pool takes a short lock.

pub(crate) mod dead_file;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use self::dead_file::{DeadFile, leads_to};
use crate::core::registry::Registry;
use crate::core::schema::schema;
use crate::error::Error;
use crate::recycle::thread;
use crate::sys::published_layout::NAME_BYTES;
use crate::sys::published_memory::{PublishedMemory, UnseenPool};
use crate::sys::run_folder::{self, BEING_MADE, SUFFIX};

/// Most files that other processes with this name and number, in other pid namespaces, may have.
const MOST_NAMESAKES: u32 = 100;

/// Shows this process's pools to others until it is dropped, which removes the file. Pools in it stay valid.
#[derive(Debug)]
pub struct Publication {
    memory: &'static PublishedMemory,
    path: PathBuf,
    pid: u32,
}

/// Shows this process's pools and other entries to other processes: counters, places of pages, parameters.
/// The crate `pagepool-watch` and the command `pagepool` read them.
///
/// They are in a file of this process's memory, in the folder `$PAGEPOOL_RUN`, else `/run/pagepool` for root,
/// else `$XDG_RUNTIME_DIR/pagepool`. After a kill the file shows the last state. A publisher removes files of
/// dead processes with its name, except that of the last to die. Forwarders of `pagepool-net` enter their
/// devices and ports themselves.
///
/// The folder should be on tmpfs. On another file system the first store to a page after each write-back
/// takes a page fault. If `fallocate` reserves nothing there (copy on write, network) a store may find it
/// full, and SIGBUS kills the process.
///
/// `name` is what observers see: 1 to 64 of `A-Z a-z 0-9 - _ .`, the first no dot. Call this before the first
/// pool exists; an arena made earlier is not shown. A process publishes once.
///
/// Only the user of the process can read the file, because it contains addresses. A forked child publishes
/// nothing: it has a copy of the memory, and does not change the parent's pools. It must not drop handles
/// that were copied into it, published or not. A child of raw `clone(2)` without `exec` has the parent's
/// memory itself: it must not touch pools, nor `exit` with destructors.
///
/// # Errors
/// [`Error::Parameter`] for the name, a folder that others may write to, no folder, or a limit of file sizes
/// (`RLIMIT_FSIZE`) below 16 MiB; [`Error::Busy`] the second time, and while a pool exists; [`Error::System`]
/// for a failed call.
///
/// ```
/// let folder = std::env::temp_dir().join(format!("pagepool-doc-{}", std::process::id()));
/// # // SAFETY: the example has one thread.
/// # unsafe { std::env::set_var("PAGEPOOL_RUN", &folder) };
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// let publication = pagepool::publish("doc")?;
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();
/// let buffer = pool.alloc_page();
///
/// // `pagepool list` and other processes of the same user read this file:
/// assert_eq!(publication.path(), folder.join(format!("doc.{}.pagepool", std::process::id())));
/// # drop((buffer, publication));
/// # std::fs::remove_dir(folder).unwrap();
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn publish(name: &str) -> Result<Publication, Error> {
    check_name(name)?;
    let claim = PublishedMemory::claim()?;
    check_no_pool()?;
    let folder = run_folder::of_user()?;
    run_folder::make(&folder)?;
    remove_dead(&folder, name);
    let new = NewFile::make(&folder, name)?;
    let show = || new.show(&folder, name);
    let (memory, path) = PublishedMemory::publish(claim, &new.file, name, &schema(), show)?;
    thread::show();
    Ok(Publication { memory, path, pid: std::process::id() })
}

/// Records in the published file that the process runs now; does nothing if it has not published.
///
/// Of a killed process a reader sees the time of the last sign (`Life::Dead` in the crate `pagepool-watch`).
/// Pools and entries that come and go are signs too. If none does for long, call this now and then in a loop;
/// forwarders of `pagepool-net` do while they publish their counters. Any thread; costs a read of the clock.
pub fn sign_of_life() {
    if let Some(memory) = PublishedMemory::current() {
        memory.sign();
    }
}

impl Publication {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a copy in a child of `fork`. The file belongs to the parent, and stays when the copy
    /// is dropped.
    pub fn is_of_parent(&self) -> bool {
        // A child may have its parent's number in a new pid namespace, and one of raw clone(2) ran no hook.
        self.memory.is_of_parent() || std::process::id() != self.pid
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if !self.is_of_parent() {
            self.memory.close();
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ok = (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.');
    let must_be = format!("1 to {NAME_BYTES} letters, digits, '-', '_' and '.', not starting with '.'");
    Error::require(ok, "name", format_args!("{name:?}"), must_be)
}

/// Refuses to publish while pools are on the heap, where no observer sees them.
fn check_no_pool() -> Result<(), Error> {
    let count = UnseenPool::count();
    if count == 0 {
        return Ok(());
    }
    let pools = Registry::process().pools(); // without those of other registries
    let such = pools.first().map_or_else(String::new, |first| format!(", such as {:?}", first.name()));
    let what = format!("existing pools cannot be published ({count}{such}): publish before the first pool");
    Err(Error::Busy { what })
}

/// Removes the files of dead processes with this name, except that of the last to die, for later readers.
fn remove_dead(folder: &Path, name: &str) {
    let of_name = |path: &Path| {
        let file = path.file_name()?.to_str()?;
        let shown = file.strip_suffix(SUFFIX);
        let number = shown.or_else(|| file.strip_suffix(BEING_MADE)?.strip_prefix('.'))?;
        let number = number.strip_prefix(name)?.strip_prefix('.')?;
        number.chars().all(|c| c.is_ascii_digit() || c == '-').then_some(())
    };
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut dead: Vec<_> = paths.filter(|path| of_name(path).is_some()).filter_map(DeadFile::take).collect();
    let newest = dead.iter().enumerate().filter_map(|(at, dead)| Some((dead.last_sign()?, at))).max();
    newest.map(|(_, at)| dead.swap_remove(at));
    dead.into_iter().for_each(|dead| drop(dead.remove()));
}

/// A file that is being made, with a lock and a temporary name that is removed with this. Another publisher
/// may take it for a dead one before it is locked, but not after it has its final name.
#[derive(Debug)]
struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    fn make(folder: &Path, name: &str) -> Result<Self, Error> {
        let remedy = || format!("{} must be a folder where this process may create files", folder.display());
        for number in numbers() {
            let path = folder.join(format!(".{name}.{number}{BEING_MADE}"));
            let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = match options {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(Error::of_call("open", remedy))?,
            };
            run_folder::lock(&file).map_err(Error::of_call("flock", remedy))?;
            // From here on it cannot be taken for a dead one; before, it may have been.
            if leads_to(&path, &file) {
                return Ok(Self { path, file });
            }
        }
        Err(in_the_way(name))
    }

    /// Gives it a name among the published files.
    fn show(&self, folder: &Path, name: &str) -> Result<PathBuf, Error> {
        for number in numbers() {
            let path = folder.join(format!("{name}.{number}{SUFFIX}"));
            match fs::hard_link(&self.path, &path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let remedy =
                        || format!("{} must be on a file system with hard links (tmpfs)", folder.display());
                    return Err(Error::of_call("link", remedy)(error));
                }
            }
        }
        Err(in_the_way(name))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Numbers for files of this process, the likely one first.
fn numbers() -> impl Iterator<Item = String> {
    let pid = std::process::id();
    (0..MOST_NAMESAKES).map(move |at| if at == 0 { pid.to_string() } else { format!("{pid}-{at}") })
}

fn in_the_way(name: &str) -> Error {
    let pid = std::process::id();
    let what = format!("{MOST_NAMESAKES} files of {name} and process {pid} exist: run pagepool clean");
    Error::Busy { what }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_unlocked_file_counts_as_dead_and_a_locked_one_does_not() {
        let folder = std::env::temp_dir().join(format!("pagepool-new-file-{}", std::process::id()));
        run_folder::make(&folder).unwrap();
        let pid = std::process::id();
        let early = folder.join(format!(".name.{pid}.new"));
        fs::write(&early, "").unwrap();
        assert_eq!(DeadFile::take(early.clone()).unwrap().remove().unwrap(), Some(early.clone()));

        let new = NewFile::make(&folder, "name").unwrap();
        assert!(new.path == early && DeadFile::take(early.clone()).is_none());
        let [first, second] = [(); 2].map(|()| new.show(&folder, "name").unwrap());
        let NewFile { ref file, .. } = new;
        assert!(leads_to(&first, file) && leads_to(&second, file) && first != second);
        remove_dead(&folder, "name");
        assert_eq!(files(&folder).len(), 3, "it is locked");
        drop(new);
        assert_eq!(files(&folder), [format!("name.{pid}-1.pagepool"), format!("name.{pid}.pagepool")]);
        let dead = DeadFile::take(first.clone()).unwrap();
        fs::remove_file(&first).unwrap();
        assert_eq!(dead.remove().unwrap(), None, "somebody was faster");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn of_the_dead_files_of_a_name_the_newest_stays() {
        let folder = std::env::temp_dir().join(format!("pagepool-dead-files-{}", std::process::id()));
        run_folder::make(&folder).unwrap();
        let dead = |name: &str, last_sign: u64| {
            let mut header = [0; 512];
            header[..8].copy_from_slice(b"PAGEPOOL");
            header[56..64].copy_from_slice(&last_sign.to_ne_bytes());
            fs::write(folder.join(name), header).unwrap();
        };
        dead("name.3.pagepool", 5);
        dead("name.1-1.pagepool", 7);
        dead("name.2.pagepool", 6);
        dead("name.1.other.pagepool", 1);
        dead("other.1.pagepool", 1);
        fs::write(folder.join("name.9.pagepool"), "").unwrap();
        fs::write(folder.join(".name.1.new"), "").unwrap();
        remove_dead(&folder, "name");
        assert_eq!(files(&folder), ["name.1-1.pagepool", "name.1.other.pagepool", "other.1.pagepool"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
