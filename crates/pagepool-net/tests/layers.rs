//! The shape of the source, held to what ARCHITECTURE.md says of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that may name `libc`, beside those of `sys`.
const LIBC: &[(&str, &str)] = &[("zerocopy.rs", "numbers of errors")];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the crate");
    let paths = entries.map(|entry| entry.expect("it is being listed").path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    files.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

/// Files under `src`, with their text and their lines of code: no comments, nothing from the unit tests on.
fn sources() -> Vec<(PathBuf, String, Vec<String>)> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        let body = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("").to_owned();
        let code = body.lines().map(|line| line.split("//").next().unwrap_or("").trim_end().to_owned());
        let code = code.filter(|line| !line.is_empty()).collect();
        (path, text, code)
    };
    rust_files(&root().join("src")).into_iter().map(read).collect()
}

#[test]
fn only_sys_calls_the_kernel() {
    let is_sys = |path: &Path| path.iter().any(|part| part == "sys" || part == "sys.rs");
    for (path, _, code) in sources().iter().filter(|(path, ..)| !is_sys(path)) {
        let names_it = code.iter().any(|line| line.contains("libc::"));
        let may = LIBC.iter().any(|&(file, _)| path.ends_with(file));
        assert_eq!(names_it, may, "libc in {}", path.display());
    }
}

#[test]
fn whoever_is_unsafe_says_why() {
    for (path, text, code) in sources() {
        let forms = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait"];
        let is_unsafe = code.iter().any(|line| forms.iter().any(|form| line.contains(form)));
        let says = text.lines().any(|line| line.starts_with("// UNSAFETY: "));
        assert_eq!(is_unsafe, says, "unsafe, and a reason, in {}", path.display());
    }
}

#[test]
fn no_file_is_too_long() {
    for (path, _, code) in sources() {
        assert!(code.len() <= 500, "{} has {} lines of code, of 500", path.display(), code.len());
    }
}

#[test]
fn every_counter_is_asserted_by_name() {
    let here = root().join("tests").join("layers.rs");
    let tests = rust_files(&root().join("tests")).into_iter().filter(|path| *path != here);
    let files = tests.chain(rust_files(&root().join("src").join("testing")));
    let text: String = files.map(|path| fs::read_to_string(path).expect("a test file")).collect();
    let is_named = |name: &str| {
        let field = format!(".{name}");
        let ends = |at: usize| !text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
        text.match_indices(&field).any(|(at, f)| ends(at + f.len())) || text.contains(&format!(" {name}: "))
    };
    let names = [
        pagepool_net::DeviceStats::NAMES,
        pagepool_net::ForwardStats::NAMES,
        pagepool_net::PartCycles::NAMES,
        pagepool_net::PathStats::NAMES,
    ];
    let missing: Vec<_> = names.into_iter().flatten().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
}
