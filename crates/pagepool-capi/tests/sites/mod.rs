//! A C program that leaks sees where: its own file and line with debug information, else its own function, or
//! the address of the call in a program without symbols. Of the installed library, and of the one of a debug
//! build.

use std::path::{Path, PathBuf};
use std::process::Command;

use pagepool::HoldersView;
use pagepool_lab::TempFolder;
use pagepool_watch::RunFolder;

use crate::installed::{has, prefix, run, source, temporary};

const LEAK: &str = "tests/sites/leak.c";

/// What was known when the program ended.
fn left_by(program: &Path) -> HoldersView {
    let folder = TempFolder::new("pagepool-sites").expect("a temporary folder");
    run(Command::new(program).env("PAGEPOOL_RUN", folder.path()));
    let mut processes = RunFolder::at(folder.path()).processes();
    assert_eq!(processes.len(), 1, "{}: its file stays", program.display());
    let process = processes.remove(0).expect("a published file");
    process.pools[0].holders.clone().expect("the pool records them")
}

/// The marks of the program, and the lines where they stand.
fn marks() -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(source(LEAK)).expect("the program");
    let mark = |(at, line): (usize, &str)| {
        let (_, mark) = line.split_once("/* mark: ")?;
        Some((mark.trim_end_matches(" */").to_owned(), at + 1))
    };
    text.lines().enumerate().filter_map(mark).collect()
}

/// Compiles the program, against this library.
fn compiled(compiler: &str, how: &str, flags: &[&str], library: &[&str]) -> PathBuf {
    let program = temporary().join(format!("leak-{how}"));
    let mut command = Command::new(compiler);
    let language = if compiler.ends_with("++") { "c++" } else { "c" };
    command.args(["-x", language, "-Wall", "-Wextra", "-Werror"]).args(flags);
    command.arg("-I").arg(prefix().join("include")).arg(source(LEAK));
    command.args(["-x", "none", "-o"]).arg(&program).args(library);
    run(command.args(["-lpthread", "-ldl", "-lm"]));
    program
}

/// Compares what the file of a program has with its marks: with debug information lines, else functions, or
/// with neither as many places as there are marks.
fn compare(program: &Path, cxx: bool, debug: bool, symbols: bool) {
    let view = left_by(program);
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    let in_program = format!("{name}+0x");
    let groups: Vec<_> = view.groups.iter().map(|group| group.site.clone().unwrap_or_default()).collect();
    let marks: Vec<_> = marks().into_iter().filter(|(mark, _)| cxx || !mark.contains("cxx")).collect();
    assert_eq!(groups.len(), marks.len(), "{name}: a place for each call: {groups:#?}");
    for (mark, line) in marks {
        let is = |site: &&String| match (debug, symbols) {
            (true, _) => site.contains(&format!("/{LEAK}:{line}")),
            (false, true) => {
                let function = site.strip_prefix(&in_program).and_then(|rest| rest.split_once(" in "));
                function.is_some_and(|(_, function)| function.contains(&mark)) // mangled in C++
            }
            (false, false) => site.starts_with(&in_program),
        };
        let found = groups.iter().filter(is).count();
        assert!(found > 0, "{name}: no place is that of {mark}, line {line}: {groups:#?}");
    }
    assert!(groups.iter().all(|site| debug || site.contains(&in_program)), "{name}: {groups:#?}");
    stacks_begin_there(&name, &view, debug || symbols);
}

/// Each stack begins with the function of the program that allocated.
fn stacks_begin_there(name: &str, view: &HoldersView, named: bool) {
    for held in &view.oldest {
        let stack = held.stack.as_ref().expect("each stack was taken");
        let first = stack.lines().next().unwrap_or_default();
        let begins = if named { first.contains("leak_") } else { first.starts_with(&format!("{name}+0x")) };
        assert!(begins && !stack.contains("pagepool::") && !stack.contains("0xffff"), "{name}: {stack}");
        assert!(!named || stack.lines().any(|line| line.starts_with("main")), "{name}: {stack}");
    }
}

/// As a program is compiled: with debug information, without it, and without symbols.
const STRIPPED: [(&str, &[&str], bool, bool); 3] =
    [("debug", &["-g"], true, true), ("plain", &[], false, true), ("stripped", &["-s"], false, false)];

/// How a program calls: not optimised, optimised, and without the inline functions.
const UNOPTIMISED: [&str; 2] = ["-O0", "-DINLINE"];
const OPTIMISED: [&str; 2] = ["-O2", "-DINLINE"];
const CALLS: [&str; 2] = ["-O2", "-DPAGEPOOL_NO_INLINE"];

/// Compiles the program in each of these ways with each kind of information, and compares what it left.
fn every_program(compiler: &str, linked: &str, library: &[&str], ways: &[[&str; 2]]) {
    for (kind, kept, debug, symbols) in STRIPPED {
        for way in ways {
            let how = format!("{compiler}-{linked}-{kind}{}", way.concat());
            let program = compiled(compiler, &how, &[kept, way].concat(), library);
            compare(&program, compiler.ends_with("++"), debug, symbols);
        }
    }
}

fn with_shared(compiler: &str, ways: &[[&str; 2]]) {
    let lib = prefix().join("lib");
    let (folder, path) = (format!("-L{}", lib.display()), format!("-Wl,-rpath,{}", lib.display()));
    every_program(compiler, "shared", &[&folder, "-lpagepool", &path], ways);
}

fn with_archive(compiler: &str, linked: &str, archive: &Path, ways: &[[&str; 2]]) {
    every_program(compiler, linked, &[&archive.display().to_string()], ways);
}

#[test]
fn a_c_program_that_leaks_sees_its_own_places() {
    if has("cc") {
        with_shared("cc", &[UNOPTIMISED, OPTIMISED, CALLS]);
        with_archive("cc", "static", &prefix().join("lib/libpagepool.a"), &[OPTIMISED, CALLS]);
    }
}

#[test]
fn a_program_of_another_compiler_sees_its_own_places() {
    if has("clang") {
        with_shared("clang", &[UNOPTIMISED, OPTIMISED]);
    }
}

#[test]
fn a_cxx_program_that_leaks_sees_its_own_places() {
    if has("c++") {
        with_archive("c++", "static", &prefix().join("lib/libpagepool.a"), &[UNOPTIMISED, OPTIMISED]);
    }
}

/// The library as cargo built it for this test.
#[test]
fn a_c_program_sees_its_own_places_beside_a_debug_build() {
    if !has("cc") {
        return;
    }
    let program = std::env::current_exe().expect("this test");
    let built = program.parent().expect("its folder").join("libpagepool_c.a");
    assert!(built.exists(), "{}: cargo builds it with the library", built.display());
    with_archive("cc", "build", &built, &[UNOPTIMISED, CALLS]);
}
