//! Programs outside the tree that find the installed library as users do: by CMake, Meson and pkg-config. The
//! program is the receive loop of examples/, built by the files beside it. A machine without one of the tools
//! prints SKIP and the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagepool_lab::{TempFolder, has_tool as has, run};

use crate::installed::{prefix, source};

/// A folder outside the tree with the example and the files that build it.
fn project() -> TempFolder {
    let folder = TempFolder::new("pagepool-consumer").expect("a temporary folder");
    for name in ["receive-loop.c", "CMakeLists.txt", "meson.build"] {
        fs::copy(source("examples").join(name), folder.path().join(name)).expect("a file of the example");
    }
    folder
}

/// Whether a program is linked with the shared library. It runs with the installed one.
fn check(program: &Path, shared: bool) {
    let needed = run(Command::new("readelf").arg("-d").arg(program));
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    assert_eq!(needed.contains(env!("PAGEPOOL_SONAME")), shared, "{}: {needed}", program.display());
    let done = run(Command::new(program).env("LD_LIBRARY_PATH", prefix().join("lib")));
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("200000 packets"), "{done:?}");
}

fn pkgconfig() -> PathBuf {
    prefix().join("lib/pkgconfig")
}

#[test]
fn a_cmake_project_builds_with_both_libraries() {
    if !(has("cmake") && has("cc") && has("readelf")) {
        return;
    }
    let project = project();
    let build = project.path().join("build");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(project.path()).arg("-B").arg(&build);
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    check(&build.join("receive-loop"), true);
    check(&build.join("receive-loop-static"), false);
}

/// Requests that this version answers, and some that it does not.
#[test]
fn cmake_compares_versions_as_cargo_does() {
    if !(has("cmake") && has("cc")) {
        return;
    }
    let folder = TempFolder::new("pagepool-versions").expect("a temporary folder");
    let version = env!("CARGO_PKG_VERSION");
    let (series, _) = version.rsplit_once('.').expect("three numbers");
    let mut text = String::from("cmake_minimum_required(VERSION 3.13)\nproject(versions C)\n");
    let asked = [
        (String::new(), true),
        (version.to_owned(), true),
        (series.to_owned(), true),
        (format!("{version} EXACT"), true),
        (format!("{series}.999"), false),
        ("0.999".to_owned(), false),
        ("999".to_owned(), false),
        (format!("{series}.999 EXACT"), false),
    ];
    for (asked, answered) in asked {
        let not = if answered { "NOT " } else { "" };
        text += &format!(
            "unset(pagepool_DIR CACHE)\nfind_package(pagepool {asked} QUIET)\nif({not}pagepool_FOUND)\n  \
             message(SEND_ERROR \"{asked}: found is ${{pagepool_FOUND}}\")\nendif()\n"
        );
    }
    fs::write(folder.path().join("CMakeLists.txt"), text).expect("it is writable");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(folder.path()).arg("-B").arg(folder.path().join("build"));
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
}

#[test]
fn a_meson_project_builds_with_both_libraries() {
    if !(has("meson") && has("ninja") && has("pkg-config") && has("cc") && has("readelf")) {
        return;
    }
    let project = project();
    let build = project.path().join("build");
    let mut meson = Command::new("meson");
    meson.arg("setup").arg(&build).arg(project.path()).env("PKG_CONFIG_PATH", staged_pkgconfig(&project));
    run(&mut meson);
    run(Command::new("ninja").arg("-C").arg(&build));
    check(&build.join("receive-loop"), true);
    check(&build.join("receive-loop-static"), false);
}

/// `pagepool.pc` names the prefix, not the staging directory of the tests: a copy names that. (Meson reads no
/// `PKG_CONFIG_SYSROOT_DIR` from the environment.)
fn staged_pkgconfig(project: &TempFolder) -> PathBuf {
    let folder = project.path().join("pkgconfig");
    fs::create_dir(&folder).expect("it is writable");
    let text = fs::read_to_string(pkgconfig().join("pagepool.pc")).expect("it is installed");
    let text = text.replace("prefix=/opt/pagepool\n", &format!("prefix={}\n", prefix().display()));
    fs::write(folder.join("pagepool.pc"), text).expect("it is writable");
    folder
}

/// What pkg-config says to the compiler.
fn flags(project: &TempFolder, more: &[&str]) -> Vec<String> {
    let folder = project.path().join("pkgconfig");
    let folder = if folder.exists() { folder } else { staged_pkgconfig(project) };
    let mut pkgconfig = Command::new("pkg-config");
    pkgconfig.env("PKG_CONFIG_PATH", folder).args(["--cflags", "--libs"]).args(more).arg("pagepool");
    let said = String::from_utf8(run(&mut pkgconfig).stdout).expect("flags");
    said.split_whitespace().map(str::to_owned).collect()
}

/// A program without glibc: the library for Rust's musl target, linked by `musl-gcc`.
#[test]
fn musl_gcc_links_the_static_library() {
    let target = concat!("x86_64", "-unknown-linux-musl");
    let mut rustc = Command::new("rustc");
    let folder = rustc.args(["--print", "target-libdir", "--target", target]).output();
    let folder = folder.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
    if !folder.is_ok_and(|folder| Path::new(&folder).exists()) {
        return println!("SKIP musl: rustc has no {target}; rustup target add {target}");
    }
    if !(cfg!(target_arch = "x86_64") && has("musl-gcc") && has("pkg-config") && has("readelf")) {
        return;
    }
    let project = project();
    let root = project.path().join("root");
    let mut install = Command::new(env!("CARGO_BIN_EXE_pagepool-install"));
    install.env("PREFIX", &root).env("TARGET", target).env_remove("LIBDIR").env_remove("DESTDIR");
    // How it links is tested, not how fast it is.
    install.envs([("CARGO_PROFILE_CAPI_LTO", "off"), ("CARGO_PROFILE_CAPI_OPT_LEVEL", "0")]);
    run(install.env_remove("PARTS"));
    assert!(!root.join("lib/libpagepool.so").exists(), "musl has the static library alone");
    let program = project.path().join("receive-loop");
    let mut pkgconfig = Command::new("pkg-config");
    pkgconfig.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
    let said = run(pkgconfig.args(["--cflags", "--libs", "--static", "pagepool"]));
    let flags = String::from_utf8(said.stdout).expect("flags");
    let mut cc = Command::new("musl-gcc");
    cc.args(["-O2", "-static"]).arg(project.path().join("receive-loop.c")).args(flags.split_whitespace());
    let done = run(cc.arg("-o").arg(&program));
    assert!(done.stderr.is_empty(), "no warning: {}", String::from_utf8_lossy(&done.stderr));
    check(&program, false);
}

/// Every function has a manual page, and neither mandoc nor man finds a mistake in one.
#[test]
fn every_function_has_a_manual_page_without_mistakes() {
    let folder = prefix().join("share/man/man3");
    let symbols = fs::read_to_string(source("symbols.txt")).expect("a file of the crate");
    for symbol in symbols.lines() {
        let page = fs::read_to_string(folder.join(format!("{symbol}.3")));
        let page = page.unwrap_or_else(|error| panic!("{symbol}: {error}"));
        assert!(page.contains(".SH THREAD\n"), "{symbol}: {page}");
    }
    let pages = fs::read_dir(&folder).expect("it is installed").map(|page| page.expect("a page").path());
    let pages: Vec<_> = pages.collect();
    if has("man") {
        for page in &pages {
            let mut man = Command::new("man");
            let shown =
                run(man.args(["--warnings", "-l"]).arg(page).env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8"));
            assert!(
                shown.stderr.is_empty(),
                "{}: {}",
                page.display(),
                String::from_utf8_lossy(&shown.stderr)
            );
            assert!(String::from_utf8_lossy(&shown.stdout).contains("SEE ALSO"), "{}", page.display());
        }
    }
    let Ok(lint) = Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(&pages).output() else {
        return println!("SKIP mandoc: this machine has none");
    };
    let found = String::from_utf8_lossy(&lint.stdout).into_owned();
    // They have no date: the same header gives the same pages.
    let found: Vec<_> = found.lines().filter(|line| !line.contains("missing date")).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// `-static` and `-static-pie`: the program needs no shared library at all. glibc has no `libgcc_s.a`.
#[test]
fn pkg_config_static_links_programs_without_any_shared_library() {
    if !(has("pkg-config") && has("cc") && has("readelf")) {
        return;
    }
    let project = project();
    for how in ["-static", "-static-pie"] {
        let program = project.path().join("receive-loop");
        let mut cc = Command::new("cc");
        cc.args(["-O2", how]).arg(project.path().join("receive-loop.c")).arg("-o").arg(&program);
        let done = run(cc.args(flags(&project, &["--static"])));
        print!("{how}: {}", String::from_utf8_lossy(&done.stderr));
        let sections = run(Command::new("readelf").arg("-d").arg(&program));
        assert!(!String::from_utf8_lossy(&sections.stdout).contains("NEEDED"), "{how}: {sections:?}");
        check(&program, false);
    }
}
