//! The shape of the source, held to what ARCHITECTURE.md says of it.
//!
//! The layers are declared here and nowhere else: a module may name itself and those before it. The exceptions are
//! listed with their reasons, and one that is no longer needed fails as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules, lowest first.
const LAYERS: &[&str] = &[
    // The machine.
    "error",
    "sys",
    "sync",
    // Pages, and what is known of them.
    "page",
    "stats",
    "registry",
    "table",
    "slab",
    "dma",
    "area",
    // Where pages come from.
    "provider",
    "topology",
    "backing",
    "arena_params",
    "buddy",
    "free_pages",
    "device_memory",
    "arena",
    // Places of a pool.
    "wake",
    "ring",
    "lane",
    "thread",
    "no_direct_recycle",
    "cache",
    "frag",
    "params",
    // The return half, and the end.
    "shared",
    "shutdown",
    // Handles.
    "hold",
    "buf",
    "chain",
    "shared_buf",
    "raw",
    "batch",
    "bulk",
    "deferred_queue",
    "use_counts",
    "pool_ref",
    // The owner half.
    "pool",
    "refill",
    // Packets.
    "model",
    "memory",
    "buff",
    "device_table",
    "frame",
    "frame_bulk",
    "skb",
    "as_bytes",
    // For other languages.
    "token",
    // For tests alone.
    "testing",
];

/// Names that go upwards: from, to, why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("sys", "page", "the page size, a constant"),
    ("ring", "lane", "the bit of a message that says fragment, a constant"),
    ("shared", "shutdown", "a return that finds its pool ended is accounted for there"),
    ("shared", "chain", "a pool has an array of blocks for chains"),
    ("shutdown", "deferred_queue", "what waits when its pool ends is asked after by who watches the end"),
    ("buf", "shared_buf", "PageBuf::into_shared"),
    ("buf", "raw", "PageBuf::into_raw"),
];

/// Files that may name `libc`, beside those of `sys`.
const LIBC: &[(&str, &str)] = &[("error.rs", "numbers of errors")];

/// Lines of code in a file, without comments, blank lines and unit tests.
const MOST_LINES: usize = 800;

struct Source {
    /// The file, from `src`.
    file: String,
    /// The module of the crate root that it belongs to.
    module: String,
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
        let module = file.split(['/', '.']).next().expect("a file has a name").to_owned();
        Source { code: code_of(&text), file, module, text }
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

/// The words that begin right behind each `crate::`, and those in the braces there.
fn named_in(code: &[String]) -> BTreeSet<String> {
    let text = code.join(" ");
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((inner, _)) => names.extend(inner.split(',').map(|item| word(item.trim()))),
            None => drop(names.insert(word(rest))),
        }
    }
    names.remove("");
    names
}

/// The module of each item that the crate root exports.
fn exports(sources: &[Source]) -> BTreeMap<String, String> {
    let lib = sources.iter().find(|source| source.file == "lib.rs").expect("the crate root");
    let text = lib.code.join(" ");
    let statements = text.split(';').filter_map(|s| s.trim().strip_prefix("pub use "));
    let items = statements.flat_map(|statement| {
        let (module, items) = statement.split_once("::").expect("an item of a module");
        let items = items.trim_matches(['{', '}']).split(',').map(|item| item.trim().to_owned());
        items.map(|item| (item, module.to_owned())).collect::<Vec<_>>()
    });
    items.collect()
}

fn layer(module: &str) -> usize {
    LAYERS.iter().position(|&l| l == module).unwrap_or_else(|| panic!("{module} has no place in LAYERS"))
}

#[test]
fn every_module_has_its_layer() {
    let there: BTreeSet<_> = sources().into_iter().map(|source| source.module).collect();
    let declared: BTreeSet<_> = LAYERS.iter().map(|&l| l.to_owned()).chain(["lib".to_owned()]).collect();
    assert_eq!(there, declared);
}

#[test]
fn no_module_names_a_higher_one() {
    let sources = sources();
    let exports = exports(&sources);
    let mut upwards = BTreeSet::new();
    for source in sources.iter().filter(|source| source.module != "lib") {
        for name in named_in(&source.code) {
            let to = exports.get(&name).unwrap_or(&name);
            if layer(to) > layer(&source.module) {
                upwards.insert((source.module.clone(), to.clone()));
            }
        }
    }
    let excepted = EXCEPTIONS.iter().map(|&(from, to, _)| (from.to_owned(), to.to_owned())).collect();
    assert_eq!(upwards, excepted, "left: found in the source, right: EXCEPTIONS");
}

#[test]
fn only_sys_calls_the_kernel() {
    for source in sources().iter().filter(|source| source.module != "sys") {
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
