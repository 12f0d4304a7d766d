//! The libraries as linkers and loaders see them: which symbols they have, and which other libraries they
//! bear in the same program. A machine without one of the tools prints SKIP and the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{has, prefix, run, source, temporary};
use pagepool_header::version_script::{NOW, Release, version_script};

fn archive() -> PathBuf {
    prefix().join("lib/libpagepool.a")
}

fn shared() -> PathBuf {
    prefix().join("lib/libpagepool.so")
}

/// A file in a folder of its own for each test.
fn file(test: &str, name: &str) -> PathBuf {
    let folder = temporary().join("abi").join(test);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder.join(name)
}

/// `cc`, with the header's folder.
fn cc() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(prefix().join("include"));
    cc
}

/// The names that `nm` lists.
fn nm(of: &Path, how: &str) -> Vec<String> {
    let listed = run(Command::new("nm").args([how, "--defined-only"]).arg(of));
    let listed = String::from_utf8(listed.stdout).expect("nm writes ASCII");
    let names = listed.lines().filter_map(|line| line.split(' ').nth(2));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn listed() -> Vec<String> {
    fs::read_to_string(source("symbols.txt"))
        .expect("the list of symbols")
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn only_the_functions_of_the_header_are_global_in_the_archive() {
    if has("nm") && has("objcopy") {
        assert_eq!(nm(&archive(), "-g"), listed(), "left: global in libpagepool.a, right: symbols.txt");
    }
}

#[test]
fn a_plug_in_with_the_archive_exports_nothing_of_rust() {
    if !(has("cc") && has("nm") && has("objcopy")) {
        return;
    }
    for (name, hidden) in [("open.so", false), ("hidden.so", true)] {
        let plug_in = file("plug-in", name);
        let mut cc = cc();
        cc.args(["-shared", "-fPIC"]).arg(source("tests/abi/plugin.c")).arg(archive());
        if hidden {
            cc.arg("-Wl,--exclude-libs,libpagepool.a");
        }
        run(cc.arg("-o").arg(&plug_in).args(["-lpthread", "-ldl", "-lm"]));
        let mut expected = if hidden { Vec::new() } else { listed() };
        expected.push("plugin_run".to_owned());
        expected.sort_unstable();
        assert_eq!(nm(&plug_in, "-D"), expected, "left: exported by {name}");
    }
}

/// The list of the layout is what a C compiler makes of the header.
#[test]
fn fields_lie_where_the_list_says() {
    if !has("cc") {
        return;
    }
    let list = fs::read_to_string(source("abi.txt")).expect("the list");
    let mut text = String::from("#include <pagepool.h>\n");
    for line in list.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["field", of, at, ..] => {
                let pointer = line.split_once("(*").and_then(|(_, rest)| rest.split_once(')'));
                let last = line.rsplit([' ', '*']).next().expect("a name");
                let name = pointer.map_or(last, |(name, _)| name);
                text += &format!("_Static_assert(offsetof(struct {of}, {name}) == {at}, \"{of}.{name}\");\n");
            }
            ["size", of, bytes] => {
                text += &format!("_Static_assert(sizeof(struct {of}) == {bytes}, \"{of}\");\n");
            }
            _ => {}
        }
    }
    assert!(text.lines().count() > 80, "{text}");
    let program = file("layout", "layout.c");
    fs::write(&program, text).expect("the target folder");
    run(cc().args(["-c", "-o", "/dev/null"]).arg(program));
}

const OTHER: &str = r#"
//! Another Rust library in the same program: it allocates, prints, has threads and catches panics.
#[unsafe(no_mangle)]
pub extern "C" fn other_run() -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let words: Vec<String> = (0..100).map(|i| format!("{i}")).collect();
    let caught = std::panic::catch_unwind(|| if std::env::args().count() > 0 { panic!("caught") }).is_err();
    let there = std::thread::spawn(move || words.len() as i32).join().unwrap();
    there + i32::from(caught)
}
"#;

/// By each compiler that is here: ours, and those of other toolchains.
#[test]
fn the_archive_links_beside_another_rust_library() {
    if !(has("cc") && has("objcopy")) {
        return;
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let mut compilers = vec![vec![rustc]];
    let listed = Command::new("rustup").args(["toolchain", "list"]).output().map(|done| done.stdout);
    let toolchains = String::from_utf8(listed.unwrap_or_default()).unwrap();
    compilers.extend(
        toolchains
            .lines()
            .filter_map(|line| line.split(' ').next())
            .map(|name| ["rustup", "run", name, "rustc"].into_iter().map(str::to_owned).collect::<Vec<_>>()),
    );
    if compilers.len() == 1 {
        println!("SKIP: this machine has no rustup, so no other compiler");
    }
    for (at, compiler) in compilers.iter().enumerate() {
        let (text, other) = (file("beside", "other.rs"), file("beside", &format!("libother{at}.a")));
        fs::write(&text, OTHER).unwrap();
        let mut rustc = Command::new(&compiler[0]);
        rustc.args(&compiler[1..]).env_remove("RUSTUP_TOOLCHAIN").args(["--edition", "2024", "-O"]);
        run(rustc.args(["--crate-type", "staticlib", "--crate-name", "other", "-o"]).arg(&other).arg(&text));
        for (order, libraries) in [("ours", [archive(), other.clone()]), ("theirs", [other, archive()])] {
            let program = file("beside", &format!("program-{at}-{order}"));
            let mut cc = cc();
            cc.arg(source("tests/abi/beside.c")).args(libraries).arg("-o").arg(&program);
            run(cc.args(["-lpthread", "-ldl", "-lm"]));
            run(&mut Command::new(program));
        }
    }
}

/// Links the library as a later release is, in the folder of a test.
fn shared_as(test: &str, release: Release<'_>, added: Option<&str>) -> PathBuf {
    let name = format!("libpagepool.so.{}", release.soname_number);
    let (map, library) = (file(test, &format!("{name}.map")), file(test, &name));
    let before = fs::read_to_string(source("pagepool.map")).expect("the version script");
    let functions = listed();
    let functions = functions.iter().map(String::as_str).chain(added).collect();
    fs::write(&map, version_script(&before, &functions, release)).expect("the target folder");
    let mut cc = cc();
    cc.args(["-shared", "-fPIC"]).arg(format!("-Wl,-soname,{name},--version-script={}", map.display()));
    cc.args(["-Wl,-Bsymbolic-functions", "-Wl,--whole-archive"]).arg(archive()).arg("-Wl,--no-whole-archive");
    if let Some(added) = added {
        let text = file(test, "added.c");
        let body = format!("int {added}(void);\nint {added}(void)\n{{\n    return 7;\n}}\n");
        fs::write(&text, body).expect("the target folder");
        cc.arg(text);
    }
    run(cc.arg("-o").arg(&library).args(["-lpthread", "-ldl", "-lm"]));
    library
}

/// A program that calls what a later release added runs with that library, and does not start with this one;
/// a program that calls less runs with both.
#[test]
fn a_program_that_needs_a_later_release_does_not_start() {
    if !(has("cc") && has("objcopy")) {
        return;
    }
    let later = shared_as("later", Release { version: "999.0.0", ..NOW }, Some("pagepool_added"));
    let main = "#include <pagepool.h>\nint pagepool_added(void);\nint main(void)\n{\n    return ";
    for (name, value, on_ours) in [
        ("needs", "pagepool_added() == 7 && pagepool_version()[0] ? 0 : 1", false),
        ("needs-not", "pagepool_version()[0] ? 0 : 1", true),
    ] {
        let (text, program) = (file("later", &format!("{name}.c")), file("later", name));
        fs::write(&text, format!("{main}{value};\n}}\n")).unwrap();
        run(cc().arg(&text).arg(&later).arg("-o").arg(&program));
        run(Command::new(&program).env("LD_LIBRARY_PATH", later.parent().unwrap()));
        let ours = Command::new(&program).env("LD_LIBRARY_PATH", prefix().join("lib")).output().unwrap();
        assert_eq!(ours.status.success(), on_ours, "{name}: {ours:?}");
        let node = concat!("version `PAGEPOOL_", env!("PAGEPOOL_SONAME_NUMBER"), "_999.0.0' not found");
        assert!(on_ours || String::from_utf8_lossy(&ours.stderr).contains(node), "{ours:?}");
    }
}

/// A program with this soname and a plug-in with another one, which is loaded for all to see, and the other
/// way round.
#[test]
fn two_sonames_in_one_process_do_not_mix() {
    if !(has("cc") && has("objcopy")) {
        return;
    }
    let another = Release { soname_number: "999", since: "999.0.0", version: "999.0.0" };
    let (ours, theirs) = (shared(), shared_as("sonames", another, None));
    let link = file("sonames", env!("PAGEPOOL_SONAME"));
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(fs::canonicalize(&ours).unwrap(), &link).unwrap();
    for (name, of_program, of_plug_in) in [("ours", &ours, &theirs), ("theirs", &theirs, &ours)] {
        for calls in [false, true] {
            let flags: &[&str] = if calls { &["-DPAGEPOOL_NO_INLINE"] } else { &[] };
            let how = if calls { "calls" } else { "inline" };
            let plug_in = file("sonames", &format!("plugin-{name}-{how}.so"));
            let path = format!("-Wl,-rpath,{}", plug_in.parent().unwrap().display());
            let mut cc_plug_in = cc();
            cc_plug_in
                .args(["-shared", "-fPIC"])
                .args(flags)
                .arg(source("tests/abi/plugin.c"))
                .arg(of_plug_in);
            run(cc_plug_in.arg(&path).arg("-o").arg(&plug_in));
            let program = file("sonames", &format!("program-{name}-{how}"));
            let mut cc_program = cc();
            cc_program.arg("-rdynamic").args(flags).arg(source("tests/abi/host.c")).arg(of_program);
            run(cc_program.arg(&path).arg("-o").arg(&program).arg("-ldl"));
            run(Command::new(program).arg(plug_in));
        }
    }
}
