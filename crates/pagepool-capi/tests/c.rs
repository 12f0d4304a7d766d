//! The C interface as C sees it: laid out by the install command, compiled against by a C compiler, run under
//! valgrind and the address sanitizer. A machine without one of the tools prints SKIP and the reason.

use std::fs;
use std::path::Path;
use std::process::Command;

use pagepool_lab::TempFolder;

use crate::installed::{compiled, has, prefix, run, source, temporary};

const PROGRAMS: [&str; 16] = [
    "tests/c/required.c",
    "tests/c/misuse.c",
    "tests/c/batch.c",
    "tests/c/bulk.c",
    "tests/c/race.c",
    "tests/c/rest.c",
    "tests/c/random.c",
    "tests/c/skb.c",
    "tests/c/deferred.c",
    "tests/c/defaults.c",
    "tests/c/errors.c",
    "tests/c/open.c",
    "tests/c/no_owner.c",
    "tests/c/publish.c",
    "tests/c/rebind.c",
    "tests/c/elsewhere.c",
];

/// What threads, processes and the C library do to a program, which is no mistake of its own.
const BEHAVIOUR: [&str; 2] = ["tests/c/cancel.c", "tests/c/late.c"];

/// Its number is in soname.rs, and in what is written from it.
#[test]
fn no_other_file_of_the_source_has_the_number_of_the_soname() {
    let package = "../../workshop/package";
    let mut folders =
        vec![source("src"), source("tests"), source(package).join("src"), source(package).join("tests")];
    let mut files: Vec<_> = ["pagepool-config.cmake.in", "pagepool.pc.in"].map(source).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { folders.push(entry) } else { files.push(entry) }
        }
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for after in text.split("libpagepool").skip(1) {
            let after = after.strip_prefix(".so.").unwrap_or(after);
            let line = after.lines().next().unwrap_or_default();
            assert!(!after.starts_with(|c: char| c.is_ascii_digit()), "{}: {line}", file.display());
        }
    }
}

#[test]
fn exported_symbols_are_those_of_the_list() {
    if !has("nm") {
        return;
    }
    let mut nm = Command::new("nm");
    let listed = run(nm.args(["-D", "--defined-only"]).arg(prefix().join("lib/libpagepool.so")));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed.lines().filter_map(|line| line.split(' ').nth(2));
    let mut symbols: Vec<&str> = names.filter(|name| !name.starts_with("PAGEPOOL_")).collect();
    symbols.sort_unstable();
    let expected = fs::read_to_string(source("abi.txt")).unwrap();
    let expected: Vec<&str> = expected.lines().filter_map(|line| line.strip_prefix("symbol ")).collect();
    let lacks: Vec<_> = symbols.iter().filter(|symbol| !expected.contains(symbol)).collect();
    let gone: Vec<_> = expected.iter().filter(|symbol| !symbols.contains(symbol)).collect();
    assert!(
        lacks.is_empty() && gone.is_empty(),
        "abi.txt lacks {lacks:?}, and has {gone:?}, which nobody exports: PAGEPOOL_BLESS=1 cargo test -p \
         pagepool-header"
    );
    let read = |name| fs::read_to_string(source("include").join(name)).unwrap();
    let header = read("pagepool.h") + &read("pagepool_skb.h");
    for symbol in symbols {
        let (name, _) = symbol.split_once("@@").unwrap_or_else(|| panic!("{symbol}: version?"));
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

#[test]
fn the_library_has_the_probes() {
    if !has("readelf") {
        return;
    }
    let notes = run(Command::new("readelf").arg("-n").arg(prefix().join("lib/libpagepool.so")));
    let notes = String::from_utf8(notes.stdout).unwrap();
    let mut found: Vec<_> = notes.lines().filter_map(|line| line.trim().strip_prefix("Name: ")).collect();
    found.sort_unstable();
    found.dedup();
    let mut all: Vec<_> = pagepool::PoolProbe::ALL.iter().map(|probe| probe.name).collect();
    all.sort_unstable();
    assert!(notes.contains("Provider: pagepool"), "{notes}");
    assert_eq!(found, all);
}

#[test]
fn programs_run_linked_statically_and_with_the_shared_library() {
    if !has("cc") {
        return;
    }
    for file in PROGRAMS {
        run(&mut Command::new(compiled(file, "static", &["-O2"])));
        run(&mut Command::new(compiled(file, "shared", &["-O2"])));
        run(&mut Command::new(compiled(file, "shared-calls", &["-O2", "-DPAGEPOOL_NO_INLINE"])));
    }
}

#[test]
fn a_thread_may_be_cancelled_and_may_begin_at_its_end() {
    if !has("cc") {
        return;
    }
    for file in BEHAVIOUR {
        run(&mut Command::new(compiled(file, "static", &["-O2"])));
        run(&mut Command::new(compiled(file, "shared", &["-O2"])));
        let flags = ["-O1", "-DV", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        run(&mut Command::new(compiled(file, "shared-asan", &flags)));
        if !has("valgrind") {
            continue;
        }
        // glibc's record of a variable whose destructor is registered when it is too late.
        let record = "{\n  late\n  Memcheck:Leak\n  fun:calloc\n  fun:__cxa_thread_atexit_impl\n}\n";
        let suppressions = temporary().join("late.supp");
        fs::write(&suppressions, record).unwrap();
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--leak-check=full", "--error-exitcode=9"]);
        valgrind.arg(format!("--suppressions={}", suppressions.display()));
        run(valgrind.arg(compiled(file, "static-v", &["-O1", "-DV"])));
    }
}

/// Not under valgrind or a sanitizer: what other threads of the parent have is lost in the child.
#[test]
fn a_child_of_fork_ends() {
    if !has("cc") {
        return;
    }
    for how in ["static", "shared"] {
        let folder = TempFolder::new("pagepool-fork").unwrap();
        run(Command::new(compiled("tests/c/fork.c", how, &["-O2"])).env("PAGEPOOL_RUN", folder.path()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the parent took its file back");
    }
}

/// A program that ends takes its file back; one that crashes leaves it.
#[test]
fn a_program_that_ends_is_not_taken_for_killed() {
    if !has("cc") {
        return;
    }
    const ENDS: [&str; 6] = ["return", "failure", "thread", "fork", "clone", "unpublish"];
    const CRASHES: [&str; 3] = ["_exit", "abort", "kill"];
    let left = |program: &Path, arguments: &[&str]| {
        let folder = TempFolder::new("pagepool-exit").unwrap();
        let mut command = Command::new(program);
        let done = command.args(arguments).env("PAGEPOOL_RUN", folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.is_empty(), "{arguments:?}: {said}");
        fs::read_dir(folder.path()).unwrap().count()
    };
    for how in ["static", "shared"] {
        let program = compiled("tests/c/exit.c", how, &["-O2"]);
        for (ways, files) in [(&ENDS[..], 0), (&CRASHES[..], 1)] {
            for way in ways {
                assert_eq!(left(&program, &[way]), files, "{how}: files after {way}");
            }
        }
    }
    let library = prefix().join("lib/libpagepool.so").display().to_string();
    let program = compiled("tests/c/exit.c", "static", &["-O2"]);
    assert_eq!(left(&program, &["unload", &library]), 0, "files after dlclose");
}

#[test]
fn a_real_time_thread_lets_the_owner_run() {
    if !has("cc") {
        return;
    }
    let done = run(&mut Command::new(compiled("tests/c/realtime.c", "static", &["-O2"])));
    print!("{}", String::from_utf8_lossy(&done.stdout));
}

/// Not under valgrind or a sanitizer: they need the memory themselves.
#[test]
fn a_limit_on_memory_is_an_error() {
    if !has("cc") {
        return;
    }
    run(&mut Command::new(compiled("tests/c/limit.c", "static", &["-O2"])));
    run(&mut Command::new(compiled("tests/c/limit.c", "shared", &["-O2"])));
}

/// Not under valgrind or a sanitizer: their own memory is the larger part.
#[test]
fn a_pool_costs_what_it_uses() {
    if !has("cc") {
        return;
    }
    let each =
        ["small", "large", "half"].into_iter().flat_map(|file| ["static", "shared"].map(|how| (file, how)));
    for (file, how) in each {
        let done = run(&mut Command::new(compiled(&format!("tests/c/{file}.c"), how, &["-O2"])));
        print!("{file}, {how}:\n{}", String::from_utf8_lossy(&done.stdout));
    }
}

/// Instructions of a pair, loop included: at most so many, and what the project set itself. Compilers decide
/// on some of them, so a limit is two above what gcc 12 makes of the inline functions, and rustc of the rest.
const PAIRS: [(&str, u64, Option<u64>); 11] = [
    ("plain", 51, None),
    ("data", 66, None),
    ("bulk", 31, None),
    ("bulk data", 38, None),
    ("batch", 10, None),
    ("batch data", 21, None),
    ("addr", 107, None),
    ("addrs", 32, None),
    ("apart", 341, None),
    ("data elsewhere", 21, None),
    ("bulk elsewhere", 67, None),
];

#[test]
fn a_pair_takes_few_instructions() {
    if !(has("cc") && has("valgrind")) || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let program = compiled("tests/c/pairs.c", "static-pairs", &["-O2"]);
    let instructions = |pairs: &str, n: u64| -> u64 {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&program);
        let done = run(valgrind.args([pairs, &n.to_string()]));
        let report = String::from_utf8(done.stderr).unwrap();
        let collected = report.lines().find_map(|line| line.split_once("Collected : "));
        collected.expect("callgrind says how much it collected").1.trim().parse().unwrap()
    };
    for (pairs, at_most, target) in PAIRS {
        let each = (instructions(pairs, 32_000) - instructions(pairs, 12_800) + 9_600) / 19_200;
        let missed = target.filter(|&target| each > target);
        let missed = missed.map(|target| format!(", misses the target of {target}")).unwrap_or_default();
        println!("{pairs}: {each} instructions a pair, at most {at_most}{missed}");
        assert!(each <= at_most, "{pairs}: {each} instructions a pair, but at most {at_most}");
    }
}

#[test]
fn valgrind_finds_nothing_in_inline_functions() {
    under_valgrind("static-v", &["-O1", "-DV"]);
}

#[test]
fn valgrind_finds_nothing_in_calls() {
    under_valgrind("static-calls-v", &["-O1", "-DV", "-DPAGEPOOL_NO_INLINE"]);
}

fn under_valgrind(how: &str, flags: &[&str]) {
    if !(has("cc") && has("valgrind")) {
        return;
    }
    for file in PROGRAMS {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--leak-check=full", "--error-exitcode=9"]);
        run(valgrind.arg(compiled(file, how, flags)));
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    if !has("cc") {
        return;
    }
    let flags = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for file in PROGRAMS {
        run(&mut Command::new(compiled(file, "shared-asan", &flags)));
    }
}

/// The header, and every C program of these tests, in every standard that users may compile them with.
#[test]
fn no_compiler_warns() {
    let include = prefix().join("include");
    let dir = temporary();
    let text = "#include <pagepool.h>\n#include <pagepool_skb.h>\n\
                int f(struct pagepool *pool);\nint f(struct pagepool *pool)\n{\n    \
                struct pagepool_params params = PAGEPOOL_PARAMS_INIT;\n    (void)params;\n    \
                params.nid = PAGEPOOL_NODE(0);\n    \
                return pagepool_buf_put(pagepool_alloc_page(pool));\n}\n";
    let (c, cxx) = (dir.join("header.c"), dir.join("header.cc"));
    fs::write(&c, text).unwrap();
    fs::write(&cxx, text).unwrap();
    let folder = fs::read_dir(source("tests/c")).unwrap().map(|file| file.unwrap().path());
    let programs: Vec<_> =
        folder.filter(|file| file.extension().is_some_and(|ending| ending == "c")).collect();
    assert!(programs.len() > PROGRAMS.len());
    let check = |compiler: &str, standard: &str, flag: &str| {
        let mut command = Command::new(compiler);
        command.args([standard, flag, "-fsyntax-only"]);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(&include);
        command
    };
    for compiler in ["gcc", "clang", "clang-16"].into_iter().filter(|compiler| has(compiler)) {
        for standard in ["-std=c99", "-std=c17"] {
            run(check(compiler, standard, "-Wconversion").args(STRICT).arg(&c));
            run(check(compiler, standard, "-D_GNU_SOURCE=").args(&programs));
        }
    }
    for compiler in ["g++", "clang++", "clang++-16"].into_iter().filter(|compiler| has(compiler)) {
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            run(check(compiler, standard, "-Wconversion").args(STRICT).args(STRICT_CXX).arg(&cxx));
        }
    }
}

/// What careful programs are compiled with, beside -Wall and -Wextra.
const STRICT: [&str; 9] = [
    "-Wcast-qual",
    "-Wcast-align",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wundef",
    "-Wredundant-decls",
    "-Wpointer-arith",
    "-Wwrite-strings",
    "-Wvla",
];

/// And in C++.
const STRICT_CXX: [&str; 4] =
    ["-Wold-style-cast", "-Wzero-as-null-pointer-constant", "-Wnon-virtual-dtor", "-Woverloaded-virtual"];

/// Warnings that only gcc has.
#[test]
fn gcc_has_no_further_warning() {
    let gcc = |compiler: &str, standard: &str, flags: &[&str], header: &str| {
        if !has(compiler) {
            return;
        }
        let file = temporary().join(format!("{header}.{compiler}"));
        fs::write(&file, format!("#include <{header}>\nint main(void) {{ return 0; }}\n")).unwrap();
        let language = if compiler == "g++" { "c++" } else { "c" };
        let mut command = Command::new(compiler);
        command.args([standard, "-O2", "-Wall", "-Wextra", "-Werror"]).args(flags).arg("-I");
        command.arg(prefix().join("include")).args(["-x", language, "-c", "-o", "/dev/null"]);
        run(command.arg(file));
    };
    let c = ["-Wcast-align=strict", "-Wbad-function-cast", "-Wjump-misses-init", "-Wmissing-prototypes"];
    let cxx = ["-Wcast-align=strict", "-Wcast-qual", "-Wuseless-cast", "-Weffc++", "-Wextra-semi"];
    for header in ["pagepool.h", "pagepool_skb.h"] {
        gcc("gcc", "-std=gnu11", &c, header);
        gcc("g++", "-std=gnu++17", &cxx, header);
    }
    gcc("g++", "-std=gnu++17", &cxx, "pagepool_skb.hpp"); // which includes the other
}

/// Device addresses may be in arrays of uint64_t, or of Linux's __u64, which is another type.
#[test]
fn addresses_are_taken_as_linux_has_them() {
    let text = "#include <linux/types.h>\n#include <pagepool.h>\n\
                size_t f(struct pagepool *pool, __u64 *at, uint64_t *of, const __u64 *from);\n\
                size_t f(struct pagepool *pool, __u64 *at, uint64_t *of, const __u64 *from)\n{\n    \
                __u64 array[4] = {0};\n    size_t n = pagepool_alloc_addr_bulk(pool, at, 1);\n    \
                n += pagepool_alloc_addr_bulk(pool, of, 1) + pagepool_alloc_addr_bulk(pool, array, 4);\n    \
                n += pagepool_put_addr_bulk(pool, from, 1) < 0;\n    \
                n += pagepool_put_addr_bulk(pool, of, 1) < 0;\n    \
                n += pagepool_put_addr_bulk(pool, NULL, 0) < 0;\n    \
                return n + pagepool_alloc_addr_bulk(pool, NULL, 0);\n}\n";
    let other = "#include <pagepool.h>\nsize_t f(struct pagepool *pool, unsigned *at);\n\
                 size_t f(struct pagepool *pool, unsigned *at)\n{\n    \
                 return pagepool_alloc_addr_bulk(pool, at, 1);\n}\n";
    let compiles = |compiler: &str, standard: &str, text: &str| {
        let ending = if compiler.ends_with("++") { "cc" } else { "c" };
        let file = temporary().join(format!("linux.{ending}"));
        fs::write(&file, text).unwrap();
        let mut command = Command::new(compiler);
        command.args([
            standard,
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wconversion",
            "-Werror",
        ]);
        let done = command.arg("-I").arg(prefix().join("include")).arg(file).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let each =
        [("gcc", "-std=c99"), ("clang", "-std=gnu17"), ("g++", "-std=c++11"), ("clang++", "-std=c++17")];
    for (compiler, standard) in each.into_iter().filter(|(compiler, _)| has(compiler)) {
        let (accepted, said) = compiles(compiler, standard, text);
        assert!(accepted, "{compiler}: {said}");
        assert!(!compiles(compiler, standard, other).0, "{compiler} takes an array of unsigned");
    }
}

/// An array at the end of a struct has the length that it is declared with: the inline functions use none.
#[test]
fn hardened_builds_run() {
    let flags = ["-O2", "-fstrict-flex-arrays=3", "-fsanitize=bounds", "-fsanitize-trap=bounds"];
    let works = |clang: &&str| {
        let mut empty = Command::new(clang);
        empty.args(flags).args(["-x", "c", "-fsyntax-only", "/dev/null"]);
        empty.output().is_ok_and(|done| done.status.success())
    };
    let Some(clang) = ["clang-16", "clang"].into_iter().find(works) else {
        return println!("SKIP: -fstrict-flex-arrays=3 requires clang 16");
    };
    let lib = prefix().join("lib");
    for file in PROGRAMS {
        let stem = Path::new(file).file_stem().unwrap();
        let program = temporary().join(stem).with_extension("hardened");
        let mut command = Command::new(clang);
        command.args(flags).args(["-std=gnu11", "-g", "-I"]).arg(prefix().join("include")).arg(source(file));
        command.arg("-o").arg(&program).arg(lib.join("libpagepool.a"));
        run(command.args(["-lpthread", "-ldl", "-lm"]));
        run(&mut Command::new(program));
    }
}

/// The headers of C++ without a warning, in the standards from C++11 on, and without exceptions.
#[test]
fn handles_of_cxx_return_themselves() {
    if !has("c++") {
        return;
    }
    let warnings = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"];
    let include = prefix().join("include");
    for standard in ["c++11", "c++17", "c++20"] {
        let program = temporary().join(format!("owned-{standard}"));
        let mut cxx = Command::new("c++");
        cxx.arg(format!("-std={standard}")).args(warnings).arg(&include).arg(source("tests/cpp/owned.cc"));
        cxx.arg("-o").arg(&program).arg(prefix().join("lib/libpagepool.a"));
        run(cxx.args(["-lpthread", "-ldl", "-lm"]));
        run(&mut Command::new(program));
    }
    let alone = temporary().join("alone.cc");
    fs::write(&alone, "#include <pagepool_skb.hpp>\n").unwrap(); // which includes the other
    let mut cxx = Command::new("c++");
    cxx.args(["-std=c++11", "-fno-exceptions"]).args(warnings).arg(&include).arg(alone);
    run(cxx.args(["-c", "-o", "/dev/null"]));
}

#[test]
fn the_receive_loop_loses_nothing() {
    if !has("cc") {
        return;
    }
    let done = run(&mut Command::new(compiled("examples/receive-loop.c", "static", &["-O2"])));
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("2000"), "{done:?}");
}
