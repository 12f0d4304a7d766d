//! Paths to network namespaces: the names of `ip netns`, and processes.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pagepool::published::shown;

use crate::shell_word::shell_word;

/// The most names and processes to check.
const MOST: usize = 1 << 16;
/// The folder of the names of `ip netns`.
const NAMES: &str = "/run/netns";

/// Identifies a file by device and inode. All paths to a namespace have equal ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(u64, u64);

impl FileId {
    pub(super) fn new(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }

    /// The id of the file that a path leads to.
    pub(super) fn at(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::new(&fs::metadata(path)?))
    }

    /// Whether it is on this one's device; all namespaces are on one device.
    pub(super) fn is_beside(self, other: Self) -> bool {
        self.0 == other.0
    }
}

#[derive(Clone, Debug)]
pub(super) enum NamespacePlace {
    /// The path of an `ip netns` name.
    Name(PathBuf),
    Process(u32),
}

impl NamespacePlace {
    /// The file of the namespace.
    fn path(&self) -> PathBuf {
        match self {
            Self::Name(path) => path.clone(),
            Self::Process(number) => format!("/proc/{number}/ns/net").into(),
        }
    }

    /// Opens the file of the namespace. For a process with more capabilities this requires CAP_SYS_PTRACE.
    pub(super) fn open(&self) -> io::Result<File> {
        File::open(self.path())
    }

    /// The id of a file that identifies the namespace. For a name: its file, which is the namespace. For a
    /// process: its list of links, which differs between namespaces and requires no capability.
    pub(super) fn mark(&self) -> io::Result<FileId> {
        match self {
            Self::Name(path) => FileId::at(path),
            Self::Process(number) => FileId::at(format!("/proc/{number}/net/dev")),
        }
    }

    /// The prefix of a command that is to run there.
    pub(super) fn prefix(&self) -> String {
        match self {
            Self::Name(path) => format!("ip netns exec {} ", shell_word(&name(path))),
            Self::Process(_) => format!("nsenter --net={} ", self.path().display()),
        }
    }

    /// Its name, for people.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(path) => shown(&name(path)).into(),
            Self::Process(_) => self.path().display().to_string(),
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into())
}

/// All places: first names, which say more, then processes. At most [`MOST`].
pub(super) fn places() -> impl Iterator<Item = NamespacePlace> {
    let entries = |path| fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries(NAMES).map(|entry| NamespacePlace::Name(entry.path()));
    let processes = entries("/proc").filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    names.chain(processes.map(NamespacePlace::Process)).take(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_in_commands_and_escaped_for_people() {
        let place = NamespacePlace::Name(Path::new(NAMES).join("a;reboot;#\u{1b}"));
        assert_eq!(place.prefix(), r#"ip netns exec "$(printf 'a\073reboot\073\043\033')" "#);
        assert_eq!(place.text(), "a;reboot;#\\u{1b}");
    }

    #[test]
    fn this_process_is_among_the_places() {
        let own = std::process::id();
        let is_own = |place: &NamespacePlace| matches!(place, NamespacePlace::Process(pid) if *pid == own);
        let place = places().find(is_own).expect("/proc has it");
        assert_eq!(place.mark().unwrap(), FileId::at("/proc/self/net/dev").unwrap());
    }
}
