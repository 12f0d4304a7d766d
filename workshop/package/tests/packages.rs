//! The Debian packages and the tarball, tried where there is no Rust: in a new Debian in a folder, which
//! `debootstrap` makes. They require a release build of the command, so `.ci/run` runs them in a part of
//! their own: `cargo test -p pagepool-package -- --ignored`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use pagepool_lab::{TempFolder, has_tool as has, run};

use crate::installed::source;

/// The package of the shared library.
const LIBRARY: &str = concat!("libpagepool", env!("PAGEPOOL_SONAME_NUMBER"));

/// Seconds that `debootstrap` may take.
const TIME: &str = "200";

/// The packages, built once for all tests by the command that packagers run.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let _ = fs::remove_dir_all(&out);
        let mut build = Command::new(env!("CARGO_BIN_EXE_pagepool-package"));
        run(build.arg(format!("OUT={}", out.display())).env_remove("FORMATS"));
        out
    })
}

#[test]
fn an_argument_that_is_no_setting_is_refused() {
    let done = Command::new(env!("CARGO_BIN_EXE_pagepool-package")).arg("--help").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.starts_with("pagepool: ") && said.contains("only OUT= and FORMATS= are known"), "{said}");
    assert_eq!(done.status.code(), Some(1));
}

/// The files of a kind, by their names.
fn built(end: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(packages()).expect("they are built").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files.filter(|file| file.to_string_lossy().ends_with(end)).collect();
    files.sort();
    files
}

/// A Debian in a folder of its own, with a C compiler, CMake and Meson. Its mounts are those of processes
/// that have ended.
struct Debian(TempFolder);

impl Debian {
    /// From the mirror that this machine's apt has. `None`, after SKIP and the reason, without it.
    fn new() -> Option<Self> {
        let folder = TempFolder::new("pagepool-debian").expect("a temporary folder");
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let (Some(codename), Some(mirror)) = (codename, mirror()) else {
            println!("SKIP debootstrap: apt of this machine has no mirror of Debian's");
            return None;
        };
        let mut make = Command::new("timeout");
        make.args([TIME, "unshare", "--mount", "debootstrap", "--variant=minbase"]);
        make.args(["--include=gcc,libc6-dev,pkg-config,make,cmake,meson", codename])
            .arg(folder.path())
            .arg(&mirror);
        let done = make.output().expect("timeout is there");
        let said =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        if done.status.success() {
            return Some(Self(folder));
        }
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(3)..].join("; ");
        let no_network = ["Failed getting release file", "Couldn't download", "Operation not permitted"];
        assert!(
            done.status.code() == Some(124) || no_network.iter().any(|text| said.contains(text)),
            "debootstrap: {}: {last}",
            done.status
        );
        println!("SKIP debootstrap: {mirror}, {}: {last}", done.status);
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a shell script in it, and returns what that writes.
    fn script(&self, script: &str) -> String {
        let mut chroot = Command::new("chroot");
        chroot.arg(self.path()).args(["/bin/sh", "-euc", script]).current_dir("/").env_clear();
        chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root").env("LC_ALL", "C");
        String::from_utf8(run(&mut chroot).stdout).expect("text")
    }

    /// Every file, without those in which dpkg and the linker keep their own state.
    fn files(&self) -> BTreeSet<String> {
        let all = self.script("find / -xdev");
        let own = ["/var/lib/dpkg/", "/var/log/", "/var/cache/", "/proc/", "/root/"];
        all.lines().filter(|file| !own.iter().any(|own| file.starts_with(own))).map(str::to_owned).collect()
    }
}

/// The address of Debian's mirror in apt's lists.
fn mirror() -> Option<String> {
    let lists = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten();
    let mut files: Vec<PathBuf> = lists.filter_map(|file| Some(file.ok()?.path())).collect();
    files.push("/etc/apt/sources.list".into());
    let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace).map(|word| word.trim_end_matches('/'));
    words.find(|word| word.starts_with("http") && word.ends_with("/debian")).map(str::to_owned)
}

fn can_make_debian() -> bool {
    let user = run(Command::new("id").arg("-u"));
    if String::from_utf8_lossy(&user.stdout).trim() != "0" {
        println!("SKIP debootstrap: it requires root");
        return false;
    }
    has("debootstrap") && has("dpkg-shlibdeps") && has("unshare")
}

const COMPILE: &str = "cc -Wall -Werror -O2 receive-loop.c $(pkg-config --cflags --libs pagepool) -o loop
    ./loop
    cc -O2 -static receive-loop.c $(pkg-config --cflags --libs --static pagepool) -o loop-static 2>/dev/null
    ./loop-static";

/// By the files beside the example: of each build one program has the shared library, one the static.
const BUILD: &str = "for how in by-cmake by-meson; do
        case $how in
        by-cmake) cmake -S . -B $how $CMAKE_ARGUMENTS >&2; cmake --build $how >&2 ;;
        by-meson) meson setup $how . >&2; meson compile -C $how >&2 ;;
        esac
        ldd $how/receive-loop; if ldd $how/receive-loop-static | grep pagepool; then exit 1; fi
        $how/receive-loop; $how/receive-loop-static; rm -r $how
    done";

#[test]
#[ignore = "builds the command for release: a part of its own in .ci/run"]
fn packages_and_tarball_work_in_a_new_debian_and_leave_nothing() {
    if !can_make_debian() {
        return;
    }
    let (debs, tarballs) = (built(".deb"), built(".tar.gz"));
    assert_eq!((debs.len(), tarballs.len()), (3, 1), "{debs:?} {tarballs:?}");
    let Some(debian) = Debian::new() else { return };
    let root = debian.path().join("root");
    let source = |name: &&str| source("examples").join(name);
    let sources = ["receive-loop.c", "CMakeLists.txt", "meson.build"].each_ref().map(source);
    for file in debs.iter().chain(&tarballs).chain(&sources) {
        fs::copy(file, root.join(file.file_name().expect("a file"))).expect("it is writable");
    }
    let before = debian.files();
    let names = format!("pagepool libpagepool-dev {LIBRARY}");
    debian.script(&format!("cd /root; dpkg -i *.deb; dpkg --verify {names}; pagepool --version"));
    assert!(!debian.script("command -v rustc || echo none").contains('/'), "no Rust in there");
    let shared = concat!(env!("PAGEPOOL_SONAME"), " => /");
    let said = debian.script(&format!("cd /root; {COMPILE}; ldd ./loop; CMAKE_ARGUMENTS=; {BUILD}"));
    assert_eq!(said.matches("200000 packets").count(), 6, "{said}");
    assert_eq!(said.matches(shared).count(), 3, "{said}");
    debian.script(&format!("dpkg --purge {names}"));
    let left: Vec<String> = debian.files().difference(&before).cloned().collect();
    assert!(left.is_empty(), "left by a purge: {left:?}");
    assert_eq!(debian.script("dpkg-query -W | grep pagepool || true"), "");
    let tarball = "mkdir /opt/pagepool; tar -xzf *.tar.gz --strip-components=1 -C /opt/pagepool; \
                   /opt/pagepool/bin/pagepool --version; rm loop*
                   export PKG_CONFIG_PATH=/opt/pagepool/lib/pkgconfig LD_LIBRARY_PATH=/opt/pagepool/lib";
    let prefix = "CMAKE_ARGUMENTS=-DCMAKE_PREFIX_PATH=/opt/pagepool";
    let said = debian.script(&format!("cd /root; {tarball}; {COMPILE}; {prefix}; {BUILD}"));
    assert_eq!(said.matches("200000 packets").count(), 6, "{said}");
    assert_eq!(said.matches(shared).count(), 2, "{said}");
}

#[test]
#[ignore = "builds the command for release: a part of its own in .ci/run"]
fn packages_have_what_the_debian_policy_requires() {
    if !has("dpkg-shlibdeps") {
        return;
    }
    for (package, files) in [
        (LIBRARY, &[env!("PAGEPOOL_SONAME")][..]),
        (
            "libpagepool-dev",
            &[
                "include/pagepool.h",
                "libpagepool.a",
                "libpagepool.so",
                "pagepool.pc",
                "pagepool-config.cmake",
                "man3/pagepool_create.3.gz",
            ],
        ),
        ("pagepool", &["bin/pagepool", "man1/pagepool.1.gz", "completions/pagepool"]),
    ] {
        let debs = built(".deb");
        let deb =
            debs.iter().find(|deb| deb.to_string_lossy().contains(&format!("/{package}_"))).expect(package);
        let list = String::from_utf8(run(Command::new("dpkg-deb").arg("-c").arg(deb)).stdout).expect("names");
        for file in files.iter().copied().chain(["copyright"]) {
            assert!(list.contains(&format!("/{file}")), "{package} has no {file}:\n{list}");
        }
        assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
        let control =
            String::from_utf8(run(Command::new("dpkg-deb").arg("-I").arg(deb)).stdout).expect("text");
        assert!(control.contains("md5sums") && control.contains(" Depends: lib"), "{control}");
    }
    if has("lintian") {
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--no-cfg", "--fail-on", "error"]).args(built(".deb"));
        print!("{}", String::from_utf8_lossy(&run(&mut lintian).stdout));
    }
}
