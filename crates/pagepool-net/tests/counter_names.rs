//! Each counter is asserted by some test, by its name.

use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the crate");
    let paths = entries.map(|entry| entry.expect("it is being listed").path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    files.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

#[test]
fn every_counter_is_asserted_by_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = root.join("tests").join("counter_names.rs");
    let tests = rust_files(&root.join("tests")).into_iter().filter(|path| *path != here);
    let files = tests.chain(rust_files(&root.join("src").join("testing")));
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
