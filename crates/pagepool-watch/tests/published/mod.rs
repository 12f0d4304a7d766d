//! A folder of published files for a test, and processes that publish in it.
#![allow(clippy::unwrap_used, dead_code)]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use pagepool_watch::RunFolder;

/// Whether this process is one that a test started, and what for.
pub const ROLE: &str = "PAGEPOOL_TEST_PUBLISHES";

/// A folder, removed with what is in it unless it is another process's.
pub struct Folder {
    pub runs: RunFolder,
    is_ours: bool,
}

impl Folder {
    /// A new one.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pagepool-test-{}-{number}", std::process::id());
        let on_tmpfs = PathBuf::from("/dev/shm");
        let parent = if on_tmpfs.is_dir() { on_tmpfs } else { env::temp_dir() };
        Self { runs: RunFolder::at(parent.join(name)), is_ours: true }
    }

    /// That which the test gave to this process.
    pub fn of_child() -> Self {
        Self { runs: RunFolder::of_user().unwrap(), is_ours: false }
    }

    /// A process that runs a test of this program again.
    pub fn command(&self, test: &str, role: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env("PAGEPOOL_RUN", self.runs.path());
        // The leak sanitizer does not look into files that are mapped, so what a pool in one leads to is lost
        // for it.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_dir_all(self.runs.path());
        }
    }
}

/// What a child did.
pub struct Done(Output);

impl Done {
    /// True if it ran that one test, and well, or says why it did not; else this panics with what it said.
    pub fn succeeded(&self) -> bool {
        let [out, err] = [&self.0.stdout, &self.0.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(self.0.status.success() && out.contains("1 passed"), "{out}{err}");
        // With one thread, the test's name is before it in the line.
        let reasons = out.lines().filter_map(|line| line.find("SKIP ").map(|at| &line[at..]));
        reasons.for_each(|reason| println!("{reason}"));
        true
    }
}

/// Runs the test again in a process with a folder of its own; `None` in that process.
pub fn in_child(test: &str, role: &str) -> Option<Done> {
    if env::var_os(ROLE).is_some() {
        return None;
    }
    Some(Done(Folder::new().command(test, role).output().unwrap()))
}
