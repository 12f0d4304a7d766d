//! Each counter of this crate and of `pagepool` is asserted by some test of its crate, by its name.

use std::fs;
use std::path::{Path, PathBuf};

use pagepool::{DeferredStats, Stats};
use pagepool_net::{DeviceStats, ForwardStats, PartCycles, PathStats};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the crate");
    let paths = entries.map(|entry| entry.expect("it is being listed").path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    files.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

/// Asserts that the files in `folders` name all of `declared`: as a field, or as what `also` makes of them.
fn assert_named(folders: &[&str], declared: &[&[&'static str]], also: fn(&str) -> String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = folders.iter().flat_map(|folder| rust_files(&root.join(folder)));
    let files = files.filter(|path| !path.ends_with("counter_names.rs"));
    let text: String = files.map(|path| fs::read_to_string(path).expect("a test file")).collect();
    let is_named = |name: &str| {
        let field = format!(".{name}");
        let ends = |at: usize| !text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
        text.match_indices(&field).any(|(at, f)| ends(at + f.len())) || text.contains(&also(name))
    };
    let missing: Vec<_> = declared.iter().copied().flatten().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "no test in {folders:?} names {missing:?}");
}

#[test]
fn every_counter_of_a_pool_is_asserted_by_name() {
    let declared = [Stats::NAMES, DeferredStats::NAMES];
    assert_named(&["../pagepool/tests"], &declared, |name| format!("\"{name}\""));
}

#[test]
fn every_counter_of_this_crate_is_asserted_by_name() {
    let declared = [DeviceStats::NAMES, ForwardStats::NAMES, PartCycles::NAMES, PathStats::NAMES];
    assert_named(&["tests", "src/testing"], &declared, |name| format!(" {name}: "));
}
