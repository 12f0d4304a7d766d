//! The library as the install command lays it out, and C programs that are compiled against it.

// UNSAFETY: flock(2), which takes a descriptor.
#![expect(unsafe_code)]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use pagepool_lab::{has_tool as has, run};
use pagepool_package::install::Installation;

/// The target folder's, for files of tests. Until this process ends it is its own: a second one of the same
/// program, whose files have the same names, waits here.
pub fn temporary() -> &'static Path {
    static LOCK: OnceLock<File> = OnceLock::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    LOCK.get_or_init(|| {
        let file = File::create(folder.join(format!("{}.lock", this()))).expect("it is writable");
        // SAFETY: the call takes the descriptor of a file that is open.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
        file
    });
    folder
}

/// The program, as part of a file's name.
fn this() -> String {
    module_path!().replace("::", "-")
}

/// The prefix, laid out once for all tests as the install command does.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let destdir = temporary().join(format!("installed-{}", this()));
        let _ = fs::remove_dir_all(&destdir);
        let prefix = destdir.join("opt/pagepool");
        let installation = Installation::of_library(destdir, "/opt/pagepool");
        installation.run().expect("the library can be installed");
        prefix
    })
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Compiles a C program of this crate against the installed library; the flags decide how.
pub fn compiled(file: &str, how: &str, flags: &[&str]) -> PathBuf {
    compiled_with(file, how, flags, &[])
}

/// The same, of a program that needs more sources or libraries, which stand behind it.
pub fn compiled_with(file: &str, how: &str, flags: &[&str], more: &[&str]) -> PathBuf {
    let stem = source(file).file_stem().expect("a file").to_string_lossy().into_owned();
    let program = temporary().join(format!("{stem}-{how}"));
    let lib = prefix().join("lib");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"]).args(flags);
    cc.arg("-I").arg(prefix().join("include")).arg(source(file)).args(more).arg("-o").arg(&program);
    if how.starts_with("static") {
        cc.arg(lib.join("libpagepool.a"));
    } else {
        cc.arg("-L").arg(&lib).arg("-lpagepool").arg(format!("-Wl,-rpath,{}", lib.display()));
    }
    run(cc.args(["-lpthread", "-ldl", "-lm"]));
    program
}
