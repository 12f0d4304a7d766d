//! Builds the C library and the command, and installs them under a prefix:
//! `cargo run -p pagepool-capi --bin pagepool-install`.
//!
//! Settings come from the environment or as arguments, `PREFIX=/opt/pagepool`. It requires cargo with its
//! linker, `cc`, and for the static library `objcopy` and `ar` (binutils).
//!
//! * `PREFIX` (default `/usr/local`) and `LIBDIR` (default `PREFIX/lib`)
//! * `DESTDIR` (default none): a directory that stands for `/`, for packagers
//! * `TARGET` (default: this system): another target of Rust, `x86_64-unknown-linux-musl`; installs only the
//!   library, and for musl only the static one
//! * `PARTS` (default `library,command`): `library` is the C library, its header and the files of pkg-config,
//!   Meson and CMake; `command` is `pagepool`, its manual pages and its shell completions. The command
//!   requires the whole repository; without it the default is `library`.

#[path = "install/manual.rs"]
mod manual;
#[path = "install/relink.rs"]
mod relink;

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SONAME: &str = env!("PAGEPOOL_SONAME");

const SETTINGS: &[&str] = &["PREFIX=", "LIBDIR=", "DESTDIR=", "PARTS=", "TARGET="];

const HEADERS: &[&str] = &["pagepool.h", "pagepool_skb.h", "pagepool.hpp", "pagepool_skb.hpp"];

const PARTS: &[&str] = &["library", "command"];

/// Files for build systems: the template, its folder below `LIBDIR`, and its name there.
const TEMPLATES: &[(&str, &str, &str)] = &[
    ("pagepool.pc.in", "pkgconfig", "pagepool.pc"),
    ("pagepool-config.cmake.in", "cmake/pagepool", "pagepool-config.cmake"),
    ("pagepool-config-version.cmake.in", "cmake/pagepool", "pagepool-config-version.cmake"),
];

/// The completion scripts of the command: the shell, the folder below `PREFIX`, and the name there.
const COMPLETIONS: &[(&str, &str, &str)] = &[
    ("bash", "share/bash-completion/completions", "pagepool"),
    ("fish", "share/fish/vendor_completions.d", "pagepool.fish"),
    ("zsh", "share/zsh/site-functions", "_pagepool"),
];

/// What to install, and where.
struct InstallLayout {
    parts: String,
    destdir: PathBuf,
    prefix: PathBuf,
    libdir: PathBuf,
    target: Option<String>,
}

fn main() -> ExitCode {
    let Err(error) = install() else { return ExitCode::SUCCESS };
    eprintln!("pagepool: {error}");
    ExitCode::FAILURE
}

fn install() -> Result<(), Box<dyn Error>> {
    let layout = InstallLayout::from_environment()?;
    if layout.has("library") {
        layout.install(&layout.build()?)?;
    }
    if layout.has("command") {
        layout.install_command()?;
    }
    println!("pagepool {VERSION} is in {}", layout.on_disk(&layout.prefix).display());
    Ok(())
}

/// A setting: an argument `NAME=value`, or an environment variable.
fn setting(name: &str) -> Option<PathBuf> {
    let argument =
        env::args().skip(1).find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()));
    let value = argument.or_else(|| env::var(name).ok())?;
    (!value.is_empty()).then(|| value.into())
}

impl InstallLayout {
    fn from_environment() -> Result<Self, Box<dyn Error>> {
        let known = |arg: &str| SETTINGS.iter().any(|name| arg.starts_with(name));
        if let Some(unknown) = env::args().skip(1).find(|arg| !known(arg)) {
            return Err(format!("{unknown}: only {} are known", SETTINGS.join(", ")).into());
        }
        let prefix = setting("PREFIX").unwrap_or_else(|| "/usr/local".into());
        let libdir = setting("LIBDIR").unwrap_or_else(|| prefix.join("lib"));
        for (name, path) in [("PREFIX", &prefix), ("LIBDIR", &libdir)] {
            if !path.is_absolute() {
                return Err(format!("{name} is {}, but must be an absolute path", path.display()).into());
            }
        }
        let target = setting("TARGET").map(|target| target.to_string_lossy().into_owned());
        let destdir = setting("DESTDIR").unwrap_or_default();
        Ok(Self { parts: parts(target.is_some())?, destdir, prefix, libdir, target })
    }

    fn has(&self, part: &str) -> bool {
        self.parts.split(',').any(|chosen| chosen == part)
    }

    /// Where a path of the installed system is now: below `DESTDIR`.
    fn on_disk(&self, path: &Path) -> PathBuf {
        if self.destdir.as_os_str().is_empty() {
            return path.into();
        }
        self.destdir.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn install(&self, built: &Path) -> Result<(), Box<dyn Error>> {
        let libdir = self.on_disk(&self.libdir);
        let include = self.on_disk(&self.prefix.join("include"));
        for folder in [&include, &libdir] {
            make_folder(folder)?;
        }
        let libraries = relink::relink(built, Path::new(ROOT), self.target.as_deref())?;
        if let Some(shared) = libraries.shared {
            let versioned = format!("libpagepool.so.{VERSION}");
            copy(&shared, &libdir.join(&versioned), 0o755)?;
            link(&versioned, &libdir.join(SONAME))?;
            link(SONAME, &libdir.join("libpagepool.so"))?;
        }
        copy(&libraries.archive, &libdir.join("libpagepool.a"), 0o644)?;
        for header in HEADERS {
            copy(&Path::new(ROOT).join("include").join(header), &include.join(header), 0o644)?;
        }
        for (template, folder, name) in TEMPLATES {
            let text = self.filled_in(&fs::read_to_string(Path::new(ROOT).join(template))?);
            let folder = libdir.join(folder);
            make_folder(&folder)?;
            replace(&folder.join(name), |new| fs::write(new, text))?;
        }
        self.install_manual(&include)
    }

    fn install_manual(&self, include: &Path) -> Result<(), Box<dyn Error>> {
        let folder = self.on_disk(&self.prefix.join("share/man/man3"));
        make_folder(&folder)?;
        for header in fs::read_dir(include)? {
            let name = header?.file_name().to_string_lossy().into_owned();
            if !name.starts_with("pagepool") || !name.ends_with(".h") {
                continue;
            }
            let text = fs::read_to_string(include.join(&name))?;
            for page in manual::pages(&text, &name, VERSION) {
                replace(&folder.join(page.file), |new| fs::write(new, page.text))?;
            }
        }
        Ok(())
    }

    /// Builds the libraries, and returns their folder. They have their own profile, because errors inside
    /// must not abort C programs.
    fn build(&self) -> Result<PathBuf, Box<dyn Error>> {
        let mut command = cargo();
        command.args(["build", "--profile", "capi", "--package", "pagepool-capi", "--lib"]);
        command.args(self.target.iter().flat_map(|target| ["--target", target]));
        command.args(["--message-format", "json-render-diagnostics"]);
        let messages = output_of(&mut command)?;
        let end = "/libpagepool_c.a";
        let library =
            messages.split('"').find(|word| word.ends_with(end)).ok_or("cargo reports no libpagepool_c.a")?;
        Ok(library.strip_suffix(end).unwrap_or(library).into())
    }

    /// Builds the command, which prints its manual pages and its completion scripts.
    fn install_command(&self) -> Result<(), Box<dyn Error>> {
        let built = build_command()?;
        let below = |folder: &str| self.on_disk(&self.prefix.join(folder));
        let (bin, man) = (below("bin"), below("share/man/man1"));
        make_folder(&bin)?;
        copy(&built, &bin.join("pagepool"), 0o755)?;
        make_folder(&man)?;
        output_of(Command::new(&built).args(["man", "--dir"]).arg(std::path::absolute(&man)?))?;
        for (shell, folder, name) in COMPLETIONS {
            let script = output_of(Command::new(&built).args(["completions", shell]))?;
            make_folder(&below(folder))?;
            replace(&below(folder).join(name), |new| fs::write(new, &script))?;
        }
        Ok(())
    }

    /// Fills in a template. The whole prefix may be moved later, so paths within it are relative where the
    /// tool allows that.
    fn filled_in(&self, template: &str) -> String {
        let below = self.libdir.strip_prefix(&self.prefix).ok();
        let libdir = match below {
            Some(below) => format!("${{prefix}}/{}", below.display()),
            None => self.libdir.display().to_string(),
        };
        let prefix = self.prefix.display().to_string();
        let upwards = below.map(|below| vec![".."; below.components().count()].join("/"));
        template
            .replace("@PREFIX_FROM_LIBDIR@", upwards.as_ref().unwrap_or(&prefix))
            .replace("@PREFIX@", &prefix)
            .replace("@LIBDIR@", &libdir)
            .replace("@VERSION@", VERSION)
            .replace("@SONAME@", SONAME)
    }
}

/// The chosen parts, checked. The command is built for this system only.
fn parts(other_target: bool) -> Result<String, String> {
    let whole = Path::new(ROOT).join("../pagepool-cli/Cargo.toml").exists() && !other_target;
    let chosen = setting("PARTS").map(|parts| parts.to_string_lossy().into_owned());
    let chosen = chosen.unwrap_or_else(|| if whole { "library,command".into() } else { "library".into() });
    match chosen.split(',').find(|part| !PARTS.contains(part)) {
        Some(unknown) => Err(format!("PARTS names {unknown:?}, but the parts are library and command")),
        None if other_target && chosen != "library" => {
            Err(format!("PARTS is {chosen:?}, but with TARGET only library can be installed"))
        }
        None => Ok(chosen),
    }
}

/// Builds the command with all its features, and returns the executable.
fn build_command() -> Result<PathBuf, Box<dyn Error>> {
    let mut command = cargo();
    command.args(["build", "--profile", "dist", "--package", "pagepool-cli", "--bin", "pagepool"]);
    command.args(["--features", "full", "--message-format", "json-render-diagnostics"]);
    let messages = output_of(&mut command)?;
    let (_, after) = messages.split_once("\"executable\":\"").ok_or("cargo names no executable")?;
    Ok(after.split('"').next().unwrap_or(after).into())
}

/// Runs a command, and returns what it prints on standard output.
fn output_of(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let done = command.stderr(std::process::Stdio::inherit()).output()?;
    match done.status.success() {
        true => Ok(String::from_utf8(done.stdout)?),
        false => Err(format!("{}: {}", command.get_program().display(), done.status).into()),
    }
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(ROOT);
    command
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    replace(to, |new| {
        fs::copy(from, new)?;
        fs::set_permissions(new, fs::Permissions::from_mode(mode))
    })
    .map_err(|error| format!("{} to {error}", from.display()))
}

fn link(to: &str, at: &Path) -> Result<(), String> {
    replace(at, |new| symlink(to, new))
}

/// Creates a file beside `at`, then renames it over `at`. So a failure leaves the old file, a process that
/// uses the old one keeps it, and a file can be copied onto itself.
fn replace(at: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), String> {
    let mut new = at.as_os_str().to_owned();
    new.push(".new");
    let _ = fs::remove_file(&new); // left by an installation that was interrupted
    make(Path::new(&new)).and_then(|()| fs::rename(&new, at)).map_err(|error| {
        let _ = fs::remove_file(&new);
        format!("{}: {error}", at.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("pagepool-install-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_copied_onto_itself() {
        let folder = folder("itself");
        let header = folder.join("pagepool.h");
        fs::write(&header, "text").unwrap();
        copy(&header, &header, 0o600).unwrap();
        assert_eq!(fs::read_to_string(&header).unwrap(), "text");
        assert_eq!(fs::metadata(&header).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(&folder), ["pagepool.h"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_failed_copy_leaves_the_old_file() {
        let folder = folder("failed");
        let (missing, old) = (folder.join("missing"), folder.join("old"));
        fs::write(&old, "old").unwrap();
        let error = copy(&missing, &old, 0o644).unwrap_err();
        assert!(error.contains("missing to ") && error.contains("/old: "), "{error}");
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        assert_eq!(names(&folder), ["old"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_link_takes_the_place_of_an_older_one() {
        let folder = folder("link");
        let at = folder.join("libpagepool.so");
        for to in ["older", "newer"] {
            fs::write(folder.join("libpagepool.so.new"), "left").unwrap();
            link(to, &at).unwrap();
            assert_eq!(fs::read_link(&at).unwrap(), Path::new(to));
        }
        assert_eq!(names(&folder), ["libpagepool.so"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
