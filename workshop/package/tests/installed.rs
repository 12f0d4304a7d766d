//! The library, installed once for all tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pagepool_package::install::Installation;

/// The prefix of the installed library, below a folder that stands for `/`.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let destdir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed-package");
        let _ = fs::remove_dir_all(&destdir);
        let prefix = destdir.join("opt/pagepool");
        let installation = Installation::of_library(destdir, "/opt/pagepool");
        installation.run().expect("the library can be installed");
        prefix
    })
}

/// A file of the C library.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/pagepool-capi").join(name)
}
