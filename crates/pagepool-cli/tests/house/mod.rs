//! The shape of the source, checked against the lists in ARCHITECTURE.md: which files lie in which folder,
//! which folder may import which, which files import each other, which names exist more than once, and where
//! `unsafe` may be. `PAGEPOOL_BLESS=1 cargo test -p pagepool-cli --test all house::` writes the files of each
//! folder into its line.

mod imports;
mod plan;
mod source;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use imports::Imports;
use plan::Plan;
use source::{Crate, Source};

/// Files that lie directly in one folder, at most. `x.rs` beside `x/` belongs to the folder, and the root is
/// not counted.
const FILES_A_FOLDER: usize = 12;

/// Folders with more files, how many, and why.
const FULLER: &[(&str, &str, usize, &str)] = &[
    ("pagepool", "packet/skb", 13, "one packet type, in a file for each operation of stacks"),
    ("pagepool-cli", "commands", 13, "a file for each command"),
    (
        "pagepool-net",
        "xsk",
        14,
        "one device, in a file for each object of the kernel, one that plays it, one that makes all of them",
    ),
];

/// Words that say too many things, and what to say instead. CHANGELOG.md may name what was.
const AMBIGUOUS: &[(&str, &str)] = &[(
    concat!("for", "eign"),
    "a remote return (of another thread), an off-node page, a callback, or external memory: docs/concepts.md",
)];

/// Type names that are defined in more than one file, at most.
const DOUBLED_NAMES: usize = 19;

/// Lines of code a file, at most: no comments, no blank lines, no unit tests. A crate that is not named has
/// 500.
const CODE_LINES: &[(&str, usize)] = &[("pagepool", 800)];

/// Characters a line, at most, in Rust and in C: what rustfmt is told.
const COLUMNS: usize = 110;

/// Files that may name `libc`, beside those of a `sys`.
const LIBC: &[(&str, &str, &str)] = &[
    ("pagepool", "error", "numbers of errors"),
    ("pagepool", "remedy", "numbers of errors"),
    ("pagepool-net", "zerocopy", "numbers of errors"),
];

/// Crates whose C types and error numbers come from `libc` in every file.
const LIBC_EVERYWHERE: &[&str] = &["pagepool-capi"];

/// What a check found in each crate; a failure lists all of it.
#[derive(Default)]
struct Findings(String);

impl Findings {
    fn add(&mut self, finding: std::fmt::Arguments) {
        writeln!(self.0, "{finding}").expect("a string takes everything");
    }

    fn assert_none(&self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

/// Every crate, with its list in ARCHITECTURE.md.
fn planned() -> Vec<(Crate, Plan)> {
    let mut plans = Plan::read();
    let with_plan = |krate: Crate| {
        let plan = plans.remove(&krate.name);
        let plan = plan.unwrap_or_else(|| panic!("ARCHITECTURE.md has no block `crates/{}/src`", krate.name));
        (krate, plan)
    };
    let planned = Crate::all().into_iter().map(with_plan).collect();
    assert!(plans.is_empty(), "ARCHITECTURE.md lists crates that do not exist: {:?}", plans.keys());
    planned
}

#[test]
fn architecture_md_lists_every_file() {
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        plan::write_files(&Crate::all());
    }
    let mut findings = Findings::default();
    for (krate, plan) in planned() {
        let there: BTreeSet<&str> = krate.sources.iter().map(|source| &*source.path).collect();
        for path in there.iter().filter(|path| !plan.covers(path) && !source::is_root(path)) {
            findings.add(format_args!(
                "crates/{}/src/{path}.rs is not in ARCHITECTURE.md; to write it into the line of its folder: \
                 PAGEPOOL_BLESS=1 cargo test -p pagepool-cli --test all house::",
                krate.name
            ));
        }
        for path in plan.missing(&there) {
            findings.add(format_args!("ARCHITECTURE.md: crates/{}/src has no {path}", krate.name));
        }
    }
    findings.assert_none();
}

#[test]
fn no_folder_imports_a_higher_one() {
    let mut findings = Findings::default();
    for (krate, plan) in planned() {
        let mut unused: BTreeSet<_> = plan.upwards.iter().collect();
        for (from, to) in Imports::of(&krate).edges() {
            if plan.layer(to) <= plan.layer(from) {
                continue;
            }
            match plan.upwards.iter().find(|upwards| upwards.allows(from, to)) {
                Some(upwards) => drop(unused.remove(upwards)),
                None => findings.add(format_args!("{}: {from} imports {to}, which is higher", krate.name)),
            }
        }
        for upwards in unused {
            findings.add(format_args!("{}: `upwards: {upwards}` is not needed", krate.name));
        }
    }
    findings.assert_none();
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut findings = Findings::default();
    for (krate, plan) in planned() {
        let imports = Imports::of(&krate);
        let mut unused: BTreeSet<_> = plan.circles.iter().collect();
        for circle in imports.circles() {
            if !unused.remove(&circle) {
                let shown: Vec<_> = circle.iter().map(|path| &**path).collect();
                let edges = imports.within(&circle);
                findings.add(format_args!("{}: circle: {}\n{edges}", krate.name, shown.join(", ")));
            }
        }
        for circle in unused {
            findings.add(format_args!("{}: the circle {circle:?} is not there", krate.name));
        }
    }
    findings.assert_none();
}

#[test]
fn no_folder_has_too_many_files() {
    let mut findings = Findings::default();
    for krate in Crate::all() {
        let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
        for path in krate.sources.iter().map(|source| &*source.path) {
            if !source::is_root(path) && !krate.has_folder(path) {
                *folders.entry(path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
            }
        }
        for (folder, files) in folders {
            let exception = FULLER.iter().find(|(name, path, ..)| *name == krate.name && *path == folder);
            let most = exception.map_or(FILES_A_FOLDER, |&(_, _, most, _)| most);
            let fits = exception.map_or(files <= most, |_| files == most);
            if !fits {
                findings.add(format_args!("crates/{}/src/{folder}: {files} files, of {most}", krate.name));
            }
        }
    }
    findings.assert_none();
}

#[test]
fn a_folder_has_its_file_beside_it() {
    let mut findings = Findings::default();
    for krate in Crate::all() {
        for path in krate.sources.iter().map(|source| &*source.path) {
            if Path::new(path).ends_with("mod") {
                findings.add(format_args!("crates/{}/src/{path}.rs: write x.rs beside x/", krate.name));
            }
        }
    }
    findings.assert_none();
}

#[test]
fn a_type_name_means_one_thing() {
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let crates = Crate::all().into_iter().chain(Crate::examples());
    for krate in crates {
        for source in &krate.sources {
            for name in source.type_names() {
                files.entry(name).or_default().insert(format!("{}/{}", krate.name, source.path));
            }
        }
    }
    files.retain(|_, files| files.len() > 1);
    let mut findings = Findings::default();
    if files.len() > DOUBLED_NAMES {
        findings.add(format_args!("{} names have more than one meaning, of {DOUBLED_NAMES}", files.len()));
        for (name, files) in &files {
            findings.add(format_args!("{name}: {}", files.iter().cloned().collect::<Vec<_>>().join(", ")));
        }
    }
    findings.assert_none();
}

#[test]
fn an_unsafe_file_says_why() {
    let mut findings = Findings::default();
    each_source(|krate, source| {
        let says = source.text.lines().any(|line| line.starts_with("// UNSAFETY: "));
        if source.is_unsafe() != says {
            let what = if says { "an UNSAFETY line without unsafe code" } else { "no UNSAFETY line" };
            findings.add(format_args!("crates/{}/src/{}.rs: {what}", krate.name, source.path));
        }
    });
    findings.assert_none();
}

#[test]
fn only_sys_calls_the_kernel() {
    let mut findings = Findings::default();
    each_source(|krate, source| {
        let is_sys = source.path.split('/').any(|part| part == "sys");
        if is_sys || LIBC_EVERYWHERE.contains(&&*krate.name) {
            return;
        }
        let may = LIBC.iter().any(|&(name, path, _)| name == krate.name && path == source.path);
        if source.names("libc") != may {
            findings.add(format_args!("libc in crates/{}/src/{}.rs", krate.name, source.path));
        }
    });
    findings.assert_none();
}

#[test]
fn no_file_is_too_long() {
    let mut findings = Findings::default();
    each_source(|krate, source| {
        let most = CODE_LINES.iter().find(|(name, _)| *name == krate.name).map_or(500, |&(_, most)| most);
        let lines = source.code_lines();
        if lines > most {
            findings
                .add(format_args!("crates/{}/src/{}.rs: {lines} lines, of {most}", krate.name, source.path));
        }
    });
    findings.assert_none();
}

#[test]
fn no_line_is_too_long() {
    let mut findings = Findings::default();
    let files = source::files_with(&["rs", "c", "h"]);
    assert!(files.len() > 300, "{} files: the walk has lost a folder", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count(); // not bytes: comments have arrows and dashes
            if columns > COLUMNS {
                let file = file.strip_prefix(source::workspace()).expect("it is below").display();
                findings.add(format_args!("{file}:{}: {columns} columns, of {COLUMNS}", at + 1));
            }
        }
    }
    findings.assert_none();
}

#[test]
fn no_word_says_too_many_things() {
    let mut findings = Findings::default();
    for file in source::files_with(&["rs", "c", "h", "md"]) {
        if file.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source file").to_lowercase();
        for (at, line) in text.lines().enumerate() {
            for (word, instead) in AMBIGUOUS.iter().filter(|(word, _)| line.contains(word)) {
                let file = file.strip_prefix(source::workspace()).expect("it is below").display();
                findings.add(format_args!("{file}:{}: {word}: say {instead}", at + 1));
            }
        }
    }
    findings.assert_none();
}

/// An example that no test runs is one that goes stale. `*-rates` are tools for measuring.
#[test]
fn each_example_is_run_by_a_test() {
    let mut findings = Findings::default();
    for file in source::files_with(&["rs"]) {
        let (folder, name) = (file.parent().expect("a folder"), file.file_stem().expect("a name"));
        let name = name.to_string_lossy();
        if folder.ends_with("examples") && !name.ends_with("-rates") {
            let tests = folder.with_file_name("tests").join("examples.rs");
            let text = std::fs::read_to_string(&tests).expect("the tests of the examples");
            if !text.contains(&format!("mod {name};")) {
                findings.add(format_args!("{} does not run the example {name}", tests.display()));
            }
        }
    }
    findings.assert_none();
}

/// Cargo does not look for test files here: `tests/all.rs` or `Cargo.toml` names each.
#[test]
fn each_test_file_is_in_a_test_program() {
    let mut findings = Findings::default();
    for file in test_files() {
        let (folder, name) = (file.parent().expect("a folder"), file.file_stem().expect("a name"));
        let read = |path: &str| std::fs::read_to_string(folder.join(path)).expect("a file of the crate");
        let name = name.to_string_lossy();
        let is_module = read("all.rs").contains(&format!("\nmod {name};"));
        if !is_module && !read("../Cargo.toml").contains(&format!("\nname = \"{name}\"")) {
            findings.add(format_args!("{}: neither all.rs nor Cargo.toml names it", file.display()));
        }
    }
    findings.assert_none();
}

fn test_files() -> Vec<PathBuf> {
    let is_tests = |folder: &Path| folder.ends_with("tests") && folder.join("all.rs").exists();
    let files = source::files_with(&["rs"]).into_iter();
    files.filter(|file| file.parent().is_some_and(is_tests)).collect()
}

/// `.ci/timing` has the tests that are left to it, and no other.
#[test]
fn each_test_that_measures_time_is_listed() {
    let mut findings = Findings::default();
    let list = std::fs::read_to_string(source::workspace().join(".ci/timing")).expect("the list of CI");
    let listed = |test: &str| list.lines().filter(|line| line.ends_with(test)).count() == 1;
    let mut measuring = 0;
    for file in test_files() {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for after in text.split("#[ignore = \"measures time: .ci/timing runs it alone\"]").skip(1) {
            let name = after.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).expect("a function");
            let test = format!(" {}::{name}", file.file_stem().expect("a name").to_string_lossy());
            measuring += 1;
            if !listed(&test) {
                findings.add(format_args!(".ci/timing does not list{test} once"));
            }
        }
    }
    let lines = list.lines().filter(|line| !line.starts_with('#')).count();
    if lines != measuring {
        findings.add(format_args!(".ci/timing has {lines} lines, and {measuring} tests measure time"));
    }
    findings.assert_none();
}

fn each_source(mut check: impl FnMut(&Crate, &Source)) {
    for krate in Crate::all() {
        krate.sources.iter().for_each(|source| check(&krate, source));
    }
}
