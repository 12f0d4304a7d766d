//! Publishing: this process shows its pools to others.
//!
//! Who    any thread, once in a process, before the first pool: a pool stays where it is made, so one on the
//!        heap cannot be shown.
//! Cost   at most one instruction per buffer: a pool is made in memory that others may read, and is used
//!        there as anywhere. A pool that is made or ends takes a short lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::home::registry::{MemType, Registry};
use crate::home::thread;
use crate::observe::dead_file::{DeadFile, leads_to};
use crate::returns::schema::schema;
use crate::sys::published_layout::NAME_BYTES;
use crate::sys::published_memory::{PublishedMemory, UnseenPool};
use crate::sys::run_folder::{self, BEING_MADE, SUFFIX};

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
/// process that is killed, and then says what it had. Whoever publishes removes what dead processes of its
/// name left, but for the file of the one that died last. Forwarders of `pagepool-net` enter their devices
/// and ports by themselves.
///
/// The folder should be on tmpfs. On another file system each first store to a page after the kernel wrote
/// it to the disk takes a page fault; and where `fallocate` reserves nothing (copy on write, network) a
/// store may find it full, which ends the process by SIGBUS.
///
/// `name` is what observers see: 1 to 64 of `A-Z a-z 0-9 - _ .`, the first no dot. Call this before the
/// first pool: once one exists the call fails. An arena that was made earlier is not shown. A process
/// publishes once.
///
/// Only the user who runs the process can read the file, for it has addresses in it. A child of `fork`
/// publishes nothing: it has a copy of the memory, and the parent's pools do not change by what it does. It
/// must not drop handles that were copied into it, as without publishing. One of raw `clone(2)` without
/// `exec` has the parent's memory itself, and must not touch pools, nor `exit` with destructors.
///
/// Errors: [`Error::Parameter`] for the name, a folder that others may write to, no folder, a limit of
/// file sizes (`RLIMIT_FSIZE`) below 16 MiB; [`Error::Busy`] the second time, and while a pool exists;
/// [`Error::System`] for a call that failed.
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

/// Notes in the published file that the process runs now; where nothing is published, nothing.
///
/// The time of the last one is what a reader has of a process that was killed
/// ([`Life::Dead`](crate::observe::Life::Dead)). Pools and entries that come and go are signs, too; where
/// none does for long, call this in a loop that goes round once in a while. Forwarders of `pagepool-net` do
/// while they show what they count. Any thread; the cost is a look at the clock.
pub fn sign_of_life() {
    if let Some(memory) = PublishedMemory::current() {
        memory.sign();
    }
}

impl Publication {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a copy in a child of `fork`: the file is its parent's, and stays when the copy goes.
    pub fn is_of_parent(&self) -> bool {
        // A child may have its parent's number, in a new pid namespace; one of raw clone(2) ran no hook.
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
    if (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.') {
        return Ok(());
    }
    let must_be = format!("1 to {NAME_BYTES} letters, digits, '-', '_' and '.', the first no '.'");
    Err(Error::parameter("name", format_args!("{name:?}"), must_be))
}

/// Refuses to publish beside pools that lie on the heap, where nobody could see them.
fn check_no_pool() -> Result<(), Error> {
    let count = UnseenPool::count();
    if count == 0 {
        return Ok(());
    }
    let all = Registry::process().dump(); // without those of registries of their own
    let first = all.iter().find(|entry| entry.mem_type == MemType::Pool);
    let such = first.map_or_else(String::new, |first| format!(", such as {:?}", first.name));
    let what =
        format!("pools that exist cannot be published: {count} of them{such}; publish before the first pool");
    Err(Error::Busy { what })
}

/// Removes what dead processes of this name left, but for the file of the one that died last: somebody may
/// want to read it.
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

/// A file that is being made. It has a name that nobody reads, which goes with this, and a lock: whoever
/// looks for what dead processes left can take it before it is locked, but not once it has its own name.
#[derive(Debug)]
struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    fn make(folder: &Path, name: &str) -> Result<Self, Error> {
        let remedy = || format!("{} must be a folder in which this process may make files", folder.display());
        for number in numbers() {
            let path = folder.join(format!(".{name}.{number}{BEING_MADE}"));
            let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = match options {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(Error::of_call("open", remedy))?,
            };
            run_folder::lock(&file).map_err(Error::of_call("flock", remedy))?;
            // From here on nobody takes it for a dead one; until here, somebody may have.
            if leads_to(&path, &file) {
                return Ok(Self { path, file });
            }
        }
        Err(in_the_way(name))
    }

    /// Gives it a name of its own among the published ones.
    fn show(&self, folder: &Path, name: &str) -> Result<PathBuf, Error> {
        for number in numbers() {
            let path = folder.join(format!("{name}.{number}{SUFFIX}"));
            match fs::hard_link(&self.path, &path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let remedy =
                        || format!("{} must be where files may have two names: on tmpfs", folder.display());
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

/// What files of this process may be numbered, the likely one first.
fn numbers() -> impl Iterator<Item = String> {
    let pid = std::process::id();
    (0..MOST_NAMESAKES).map(move |at| if at == 0 { pid.to_string() } else { format!("{pid}-{at}") })
}

fn in_the_way(name: &str) -> Error {
    let pid = std::process::id();
    let what = format!("{MOST_NAMESAKES} files of {name} and process {pid} are in the way: pagepool clean");
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
    fn a_file_is_taken_for_dead_until_it_is_locked_and_not_once_it_has_its_name() {
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
