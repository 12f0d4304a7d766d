//! The shape of the source: folders are layers, and no file is in a circle with another.
//!
//! The order of the folders is declared here. A file may name its own folder and those before it. The exceptions are
//! listed with their reasons, and one that is no longer needed fails as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of `src`, and the files beside them, lowest first.
const LAYERS: &[&str] = &["error", "sys", "mem", "home", "returns", "buf", "pool", "packet", "testing"];

/// Files that name a higher folder: from, to, why.
const UPWARDS: &[(&str, &str, &str)] = &[];

/// Files that name each other, directly or through others, in alphabetical order: who, and why.
const CIRCLES: &[(&[&str], &str)] = &[];

/// Files that may name `libc`, beside those of `sys`.
const LIBC: &[(&str, &str)] = &[("error.rs", "numbers of errors")];

/// Lines of code in a file, without comments, blank lines and unit tests.
const MOST_LINES: usize = 800;

struct Source {
    /// The file, from `src`.
    file: String,
    /// The same without its ending: the path of its module.
    name: String,
    text: String,
    /// Its lines of code.
    code: Vec<String>,
}

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

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        let file = path.strip_prefix(&src).expect("it is in src").to_string_lossy().into_owned();
        let name = file.trim_end_matches(".rs").to_owned();
        Source { code: code_of(&text), file, name, text }
    };
    rust_files(&src).into_iter().map(read).collect()
}

/// Lines of code: no comments, no blank lines, nothing from the unit tests on, which stand last.
fn code_of(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| pair[0].starts_with("#[cfg(") && pair[1].starts_with("mod tests");
    let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
    let code = lines[..end].iter().map(|line| line.split("//").next().unwrap_or("").trim_end());
    code.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The paths that `crate::` begins, each as its names in order. Braces are opened, as in `crate::a::{b, c::d}`.
fn paths_in(code: &[String]) -> Vec<Vec<String>> {
    let text = code.join(" ");
    let starts = text.match_indices("crate::").map(|(at, found)| &text[at + found.len()..]);
    let mut paths = Vec::new();
    for rest in starts {
        read_path(rest, &[], &mut paths);
    }
    paths
}

/// Reads one path, or a group of them, at the start of `text`. Returns what is behind it.
fn read_path<'a>(text: &'a str, before: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    if let Some(mut inner) = text.strip_prefix('{') {
        loop {
            inner = read_path(inner.trim_start(), before, paths).trim_start();
            match inner.strip_prefix(',') {
                Some(rest) if !rest.trim_start().starts_with('}') => inner = rest,
                _ => return inner.trim_start_matches([',', ' ']).strip_prefix('}').unwrap_or(inner),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let here = [before, &[name.to_owned()]].concat();
    match rest.strip_prefix("::") {
        Some(rest) if rest.starts_with(|c: char| c.is_alphabetic() || c == '{' || c == '_') => {
            read_path(rest, &here, paths)
        }
        _ => {
            paths.push(here);
            rest
        }
    }
}

/// The longest beginning of a path that is a file.
fn file_of(path: &[String], files: &BTreeSet<String>) -> Option<String> {
    let beginnings = (1..=path.len()).rev().map(|n| path[..n].join("/"));
    beginnings.into_iter().find(|name| files.contains(name))
}

/// The file of each item that the crate root exports.
fn exports(sources: &[Source], files: &BTreeSet<String>) -> BTreeMap<String, String> {
    let lib = sources.iter().find(|source| source.name == "lib").expect("the crate root");
    let text = lib.code.join(" ");
    let mut paths = Vec::new();
    for statement in text.split(';').filter_map(|s| s.trim().strip_prefix("pub use ")) {
        read_path(statement, &[], &mut paths);
    }
    let item = |path: Vec<String>| Some((path.last()?.clone(), file_of(&path, files)?));
    paths.into_iter().filter_map(item).collect()
}

/// Which files each file names. The crate root is left out, for it names all.
fn imports(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let files: BTreeSet<_> = sources.iter().map(|source| source.name.clone()).collect();
    let exports = exports(sources, &files);
    let inner = sources.iter().filter(|source| source.name != "lib");
    let named = |source: &Source| {
        let paths = paths_in(&source.code).into_iter();
        let to = paths.filter_map(|path| file_of(&path, &files).or_else(|| exports.get(&path[0]).cloned()));
        (source.name.clone(), to.filter(|to| *to != source.name).collect())
    };
    inner.map(named).collect()
}

fn layer(file: &str) -> usize {
    let first = file.split('/').next().expect("a file has a name");
    LAYERS.iter().position(|&l| l == first).unwrap_or_else(|| panic!("{first} has no place in LAYERS"))
}

#[test]
fn every_folder_has_its_layer() {
    let first = |source: Source| source.name.split('/').next().map(str::to_owned);
    let there: BTreeSet<_> = sources().into_iter().filter_map(first).collect();
    let declared: BTreeSet<_> = LAYERS.iter().map(|&l| l.to_owned()).chain(["lib".to_owned()]).collect();
    assert_eq!(there, declared);
}

#[test]
fn no_file_names_a_higher_folder() {
    let mut upwards = BTreeSet::new();
    for (from, names) in imports(&sources()) {
        let higher = names.into_iter().filter(|to| layer(to) > layer(&from));
        upwards.extend(higher.map(|to| (from.clone(), to)));
    }
    let allowed = UPWARDS.iter().map(|&(from, to, _)| (from.to_owned(), to.to_owned())).collect();
    assert_eq!(upwards, allowed, "left: found in the source, right: UPWARDS");
}

#[test]
fn no_files_name_each_other_in_a_circle() {
    let imports = imports(&sources());
    let reach: BTreeMap<_, _> = imports.keys().map(|file| (file, reachable(file, &imports))).collect();
    let mut circles = BTreeSet::new();
    for file in imports.keys().filter(|file| reach[file].contains(*file)) {
        let back = |other: &&String| reach.get(other).is_some_and(|there| there.contains(file));
        circles.insert(reach[file].iter().filter(back).cloned().collect::<Vec<_>>());
    }
    let named = |files: &[&str]| files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>();
    let allowed = CIRCLES.iter().map(|&(files, _)| named(files)).collect();
    assert_eq!(circles, allowed, "left: found in the source, right: CIRCLES");
}

/// Every file that `from` names, and those that these name, and so on.
fn reachable(from: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<_> = imports[from].iter().cloned().collect();
    while let Some(file) = next.pop() {
        next.extend(imports.get(&file).into_iter().flatten().filter(|to| !seen.contains(*to)).cloned());
        seen.insert(file);
    }
    seen
}

#[test]
fn only_sys_calls_the_kernel() {
    for source in sources().iter().filter(|source| !source.name.starts_with("sys/")) {
        let names_it = source.code.iter().any(|line| line.contains("libc::"));
        let may = LIBC.iter().any(|&(file, _)| file == source.file);
        assert_eq!(names_it, may, "libc in {}", source.file);
    }
}

#[test]
fn whoever_is_unsafe_says_why() {
    for source in &sources() {
        let unsafe_code = |line: &String| {
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait"].iter().any(|form| line.contains(form))
        };
        let says = source.text.lines().any(|line| line.starts_with("// UNSAFETY: "));
        assert_eq!(source.code.iter().any(unsafe_code), says, "unsafe, and a reason, in {}", source.file);
    }
}

#[test]
fn no_file_is_too_long() {
    for source in &sources() {
        let lines = source.code.len();
        assert!(lines <= MOST_LINES, "{} has {lines} lines of code, of {MOST_LINES}", source.file);
    }
}

#[test]
fn every_counter_is_asserted_by_name() {
    let here = root().join("tests").join("layers.rs");
    let tests = rust_files(&root().join("tests")).into_iter().filter(|path| *path != here);
    let text: String = tests.map(|path| fs::read_to_string(path).expect("a test file")).collect();
    let is_named = |name: &str| {
        let field = format!(".{name}");
        let ends = |at: usize| !text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
        text.contains(&format!("\"{name}\"")) || text.match_indices(&field).any(|(at, f)| ends(at + f.len()))
    };
    let names = pagepool::Stats::NAMES.iter().chain(pagepool::DeferredStats::NAMES);
    let missing: Vec<_> = names.filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "no test in tests/ names {missing:?}");
}
