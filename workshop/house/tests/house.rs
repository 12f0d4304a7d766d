//! The shape of the source: which folder may import which, which files import each other, and where `unsafe`
//! and `libc` may be.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use pagepool_house::imports::Imports;
use pagepool_house::source::{Crate, Source};
use pagepool_house::{layers, source};

/// Lines of code a file, at most: no comments, no blank lines, no unit tests.
const MOST_CODE_LINES: usize = 500;

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

#[test]
fn each_file_is_in_a_layer() {
    let mut findings = Findings::default();
    for krate in Crate::all() {
        let files = krate.sources.iter().map(|source| layers::layer(&krate.name, &source.path));
        let there: BTreeSet<&str> = files.collect();
        let listed: BTreeSet<&str> = layers::layers_of(&krate.name).iter().copied().collect();
        for path in there.symmetric_difference(&listed).filter(|path| !source::is_root_layer(path)) {
            findings.add(format_args!("workshop/house/src/layers.rs and {}: {path}", krate.folder));
        }
    }
    findings.assert_none();
}

#[test]
fn no_folder_imports_a_higher_one() {
    let mut findings = Findings::default();
    for krate in Crate::all() {
        let place = |path: &str| layers::place(&krate.name, path);
        for (from, to) in Imports::read(&krate).edges() {
            if place(to) > place(from) {
                findings.add(format_args!("{}: {from} imports {to}, which is higher", krate.name));
            }
        }
    }
    findings.assert_none();
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut findings = Findings::default();
    for krate in Crate::all() {
        let imports = Imports::read(&krate);
        let allowed = layers::CIRCLES.iter().filter(|(name, ..)| *name == krate.name);
        let allowed = allowed.map(|(_, circle, _)| circle.iter().map(|path| (*path).to_owned()).collect());
        let mut unused: BTreeSet<BTreeSet<String>> = allowed.collect();
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
fn a_folder_has_its_file_beside_it() {
    let mut findings = Findings::default();
    for krate in Crate::all() {
        for path in krate.sources.iter().map(|source| &*source.path) {
            if Path::new(path).ends_with("mod") {
                findings.add(format_args!("{}/{path}.rs: write x.rs beside x/", krate.folder));
            }
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
            findings.add(format_args!("{}/{}.rs: {what}", krate.folder, source.path));
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
            findings.add(format_args!("libc in {}/{}.rs", krate.folder, source.path));
        }
    });
    findings.assert_none();
}

#[test]
fn no_file_is_too_long() {
    let mut findings = Findings::default();
    each_source(|krate, source| {
        let lines = source.code_lines();
        if lines > MOST_CODE_LINES {
            findings.add(format_args!(
                "{}/{}.rs: {lines} lines, of {MOST_CODE_LINES}",
                krate.folder, source.path
            ));
        }
    });
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
