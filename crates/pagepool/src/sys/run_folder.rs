//! The folder of published files, and the identity of the processes that published them.
//!
//! Trust  a folder counts if it is no symbolic link, is the user's, and no other user may write to it; a
//!        file in it counts if it is a regular file of the user. So no other user chooses what is read.
//! Life   a publisher locks its file (`flock`) until it ends, even if killed. A forked child can keep the
//!        lock longer. So if both processes are in one pid namespace, the publisher must exist too: with its
//!        recorded start time, or with the file mapped (start times differ between time namespaces, and
//!        after a restore). In doubt it counts as running. No process removes a locked file.

// UNSAFETY: file locks and the user id are functions of the C library.
#![expect(unsafe_code)]

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::sys::call::{read_file, retried};

/// The suffix of a published file's name.
pub(crate) const SUFFIX: &str = ".pagepool";

/// The suffix of a file that is being made. Its name begins with a dot, as no published name does.
pub(crate) const BEING_MADE: &str = ".new";

/// Whether a path is that of a published file.
pub fn is_published(path: &Path) -> bool {
    path.to_string_lossy().ends_with(SUFFIX)
}

/// Whether the path is that of a file that is being made, or that a killed process left.
pub fn is_being_made(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.') && name.ends_with(BEING_MADE))
}

/// The folder in which the user's processes publish.
pub fn of_user() -> Result<PathBuf, Error> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (named_by, folder) = match variable("PAGEPOOL_RUN") {
        Some(folder) => ("PAGEPOOL_RUN", folder),
        None if user() == 0 => return Ok("/run/pagepool".into()),
        None => ("XDG_RUNTIME_DIR", variable("XDG_RUNTIME_DIR").ok_or_else(no_folder)?.join("pagepool")),
    };
    Error::require(folder.is_absolute(), named_by, folder.display(), "an absolute path")?;
    Ok(folder)
}

fn no_folder() -> Error {
    Error::parameter("PAGEPOOL_RUN", "not set", "a folder that you own, if XDG_RUNTIME_DIR is not set")
}

/// Makes the folder if it does not exist, and checks it.
pub(crate) fn make(folder: &Path) -> Result<(), Error> {
    match DirBuilder::new().mode(0o750).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let remedy = format!("create {}, or set PAGEPOOL_RUN to a folder that you own", folder.display());
            Err(Error::of_call("mkdir", || remedy)(error))
        }
        _ => check(folder),
    }
}

/// Refuses a symbolic link, and a folder in which another user may have put files.
pub fn check(folder: &Path) -> Result<(), Error> {
    let found = fs::symlink_metadata(folder).map_err(Error::of_call("lstat", || {
        format!("nothing was published in {}, or it is not readable", folder.display())
    }))?;
    let must_be = match () {
        () if !found.is_dir() => "a folder, not a symbolic link",
        () if found.uid() != user() => "a folder that the current user owns",
        () if found.mode() & 0o022 != 0 => "a folder that no other user may write to (chmod go-w)",
        () => return Ok(()),
    };
    Err(Error::parameter("folder", folder.display(), must_be))
}

/// Opens a published file. Refuses everything except a regular file of this user.
pub fn open(path: &Path) -> Result<(File, Metadata), Error> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK; // a FIFO would block
    let refused = || format!("{} must be a file that you own, not a symbolic link", path.display());
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(Error::of_call("open", refused))?;
    let found = file.metadata().map_err(Error::of_call("fstat", refused))?;
    let is_own = found.is_file() && found.uid() == user();
    Error::require(is_own, "file", path.display(), "a regular file that the current user owns")?;
    Ok((file, found))
}

fn user() -> u32 {
    // SAFETY: the call takes no argument and touches no memory.
    unsafe { libc::geteuid() }
}

pub(crate) fn lock(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_EX)
}

pub(crate) fn try_lock(file: &File) -> bool {
    flock(file, libc::LOCK_EX | libc::LOCK_NB).is_ok()
}

/// Whether a process has the file locked: its publisher, or a child of it.
pub fn is_locked(file: &File) -> bool {
    // A publisher locks its file before the file has its name, so this never blocks a publisher.
    let free = flock(file, libc::LOCK_SH | libc::LOCK_NB).is_ok();
    if free {
        let _ = flock(file, libc::LOCK_UN);
    }
    !free
}

fn flock(file: &File, operation: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes integers.
    retried(|| unsafe { libc::flock(file.as_raw_fd(), operation) }.into())
}

/// A process, unique since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// In its own pid namespace.
    pub pid: u32,
    /// 0: not known.
    pub start_ticks: u64,
    /// 0: not known.
    pub pid_namespace: u64,
    /// The time namespace in which it published; 0: not known.
    pub time_namespace: u64,
}

impl ProcessIdentity {
    pub(crate) fn own() -> Self {
        let start_ticks = start_ticks("self").unwrap_or(0);
        Self {
            pid: std::process::id(),
            start_ticks,
            pid_namespace: pid_namespace(),
            time_namespace: namespace("self", "time"),
        }
    }

    /// Whether its pid is of this pid namespace.
    pub fn is_numbered_here(self) -> bool {
        self.pid_namespace != 0 && self.pid_namespace == pid_namespace()
    }

    /// Whether the process may exist. It published the file `inode`.
    pub fn may_be_there(self, inode: u64) -> bool {
        let pid = self.pid.to_string();
        self.start_ticks == 0
            || !self.is_numbered_here()
            || start_ticks(&pid) == Some(self.start_ticks)
            || may_map(&pid, inode)
    }

    /// Whether its monotonic clock is known to differ from this process's. CRIU may restore a process into
    /// another time namespace; that is visible only if its pid is of this pid namespace.
    pub fn has_other_clock(self) -> bool {
        let now = if self.is_numbered_here() { namespace(&self.pid.to_string(), "time") } else { 0 };
        let (its, own) = (if now == 0 { self.time_namespace } else { now }, namespace("self", "time"));
        its != 0 && own != 0 && its != own
    }
}

/// Whether a process has a file mapped; also if its maps may not be read.
fn may_map(pid: &str, inode: u64) -> bool {
    let inode = inode.to_string();
    let is_its = |line: &str| line.split_ascii_whitespace().nth(4) == Some(&inode);
    match read_file(&format!("/proc/{pid}/maps")) {
        Ok(maps) => maps.lines().any(is_its),
        Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

/// When a process started, in clock ticks since the system started.
fn start_ticks(pid: &str) -> Option<u64> {
    let stat = read_file(&format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?; // the name may contain spaces and brackets
    behind_name.split_ascii_whitespace().nth(19)?.parse().ok() // field 22
}

/// This process's pid namespace; 0 if `/proc` does not say, or is of another pid namespace, whose pids mean
/// other processes.
fn pid_namespace() -> u64 {
    let is_own = |link: PathBuf| link.to_str() == Some(&std::process::id().to_string());
    if !fs::read_link("/proc/self").is_ok_and(is_own) {
        return 0;
    }
    namespace("self", "pid")
}

/// The number of a namespace; 0 if `/proc` does not say.
fn namespace(pid: &str, kind: &str) -> u64 {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap_or_default();
    let number = link.to_str().and_then(|link| link.split_once(":[")?.1.strip_suffix(']')?.parse().ok());
    number.unwrap_or(0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn temp(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pagepool-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_folder_writable_by_others_or_a_link_is_refused() {
        let folder = temp("folder");
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777 & !0o750, 0);
        make(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make(&folder).unwrap_err().to_string().contains("no other user may write"));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let link = temp("link");
        let _ = fs::remove_file(&link);
        symlink(&folder, &link).unwrap();
        assert!(make(&link).unwrap_err().to_string().contains("not a symbolic link"));
        fs::remove_file(&link).unwrap();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = temp("files");
        make(&folder).unwrap();
        fs::write(folder.join("file"), "x").unwrap();
        symlink("file", folder.join("link")).unwrap();
        fs::create_dir(folder.join("folder")).unwrap();
        assert!(open(&folder.join("file")).is_ok());
        for refused in ["link", "folder", "none"] {
            assert!(open(&folder.join(refused)).is_err(), "{refused}");
        }
        assert!(open(Path::new("/dev/null")).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_process_is_there_while_its_start_is_the_same() {
        let own = ProcessIdentity::own();
        assert!(own.start_ticks > 0 && own.may_be_there(0) && own.is_numbered_here());
        let other = ProcessIdentity { start_ticks: 1, pid_namespace: own.pid_namespace + 1, ..own };
        assert!(other.may_be_there(u64::MAX) && !other.is_numbered_here());
        // In another time namespace, or restored: it counts if it has the file mapped.
        let shifted = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own };
        let program = fs::metadata("/proc/self/exe").unwrap();
        assert!(shifted.may_be_there(program.ino()) && !shifted.may_be_there(u64::MAX));
        assert!(!ProcessIdentity { pid: u32::MAX, ..shifted }.may_be_there(program.ino()), "nobody's number");
        let elsewhere = |time_namespace| ProcessIdentity { time_namespace, ..other }.has_other_clock();
        assert!(!own.has_other_clock() && !elsewhere(own.time_namespace) && !elsewhere(0));
        assert!(own.time_namespace == 0 || elsewhere(own.time_namespace + 1));
    }

    #[test]
    fn proc_of_another_pid_namespace_is_not_used_for_own_pids() {
        let inside = "PAGEPOOL_TEST_PID_NAMESPACE";
        if std::env::var_os(inside).is_some() {
            let own = ProcessIdentity::own();
            assert_eq!((own.pid, own.pid_namespace), (1, 0));
            return assert!(ProcessIdentity { start_ticks: 1, pid_namespace: 5, ..own }.may_be_there(1));
        }
        let this = "proc_of_another_pid_namespace_is_not_used_for_own_pids";
        let mut command = std::process::Command::new("unshare");
        command.args(["-U", "-r", "-p", "-f"]).arg(std::env::current_exe().unwrap()).env(inside, "");
        let done = command.args(["--exact", &format!("sys::run_folder::tests::{this}")]).output();
        match done {
            Ok(done) if done.status.success() || done.status.code() == Some(101) => {
                let said = String::from_utf8_lossy(&done.stdout);
                assert!(said.contains("1 passed"), "{said}");
            }
            _ => println!("SKIP: no unshare, or no new pid namespaces"),
        }
    }
}
