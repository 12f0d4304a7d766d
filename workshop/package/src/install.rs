//! Builds the C library and the command, and installs them under a prefix.

mod manual;
mod relink;

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::settings::{check_arguments, setting};
use crate::tool::output_of;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The folder of the C library, which has templates, headers and lists of symbols.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/pagepool-capi");

const SONAME: &str = env!("PAGEPOOL_SONAME");

const SETTINGS: &[&str] = &["PREFIX", "LIBDIR", "DESTDIR", "PARTS", "TARGET"];

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
pub struct Installation {
    /// `library`, `command`, or both with a comma between them.
    pub parts: String,
    /// The folder that stands for `/`; an empty path is none.
    pub destdir: PathBuf,
    /// The prefix of all files except the libraries.
    pub prefix: PathBuf,
    /// The folder of the libraries.
    pub libdir: PathBuf,
    /// Another target of Rust than this system.
    pub target: Option<String>,
}

impl Installation {
    /// The libraries and what goes with them, below a folder that stands for `/`.
    pub fn of_library(destdir: PathBuf, prefix: &str) -> Self {
        let libdir = Path::new(prefix).join("lib");
        Self { parts: "library".into(), destdir, prefix: prefix.into(), libdir, target: None }
    }

    /// Reads the settings of `pagepool-install`.
    ///
    /// # Errors
    ///
    /// If a setting is unknown or wrong.
    pub fn from_settings() -> Result<Self, Box<dyn Error>> {
        check_arguments(SETTINGS)?;
        let path = |name: &str| setting(name).map(PathBuf::from);
        let prefix = path("PREFIX").unwrap_or_else(|| "/usr/local".into());
        let libdir = path("LIBDIR").unwrap_or_else(|| prefix.join("lib"));
        for (name, path) in [("PREFIX", &prefix), ("LIBDIR", &libdir)] {
            if !path.is_absolute() {
                return Err(format!("{name} is {}, but must be an absolute path", path.display()).into());
            }
        }
        let target = setting("TARGET");
        let destdir = path("DESTDIR").unwrap_or_default();
        Ok(Self { parts: parts(target.is_some())?, destdir, prefix, libdir, target })
    }

    /// Builds the parts, and installs them.
    ///
    /// # Errors
    ///
    /// If a tool is missing or fails, or if a file cannot be written.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        if self.has("library") {
            self.install_library(&self.build_library()?)?;
        }
        if self.has("command") {
            self.install_command()?;
        }
        Ok(())
    }

    /// Prints where the files are.
    pub fn report(&self) {
        println!("pagepool {VERSION} is in {}", self.on_disk(&self.prefix).display());
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

    fn install_library(&self, built: &Path) -> Result<(), Box<dyn Error>> {
        let libdir = self.on_disk(&self.libdir);
        let include = self.on_disk(&self.prefix.join("include"));
        for folder in [&include, &libdir] {
            make_folder(folder)?;
        }
        let libraries = relink::relink(built, Path::new(ROOT), self.target.as_deref())?;
        if let Some(shared) = &libraries.shared {
            let versioned = format!("libpagepool.so.{VERSION}");
            copy(shared, &libdir.join(&versioned), 0o755)?;
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
    fn build_library(&self) -> Result<PathBuf, Box<dyn Error>> {
        let mut arguments = vec!["--profile", "capi", "--package", "pagepool-capi", "--lib"];
        arguments.extend(self.target.iter().flat_map(|target| ["--target", target]));
        let messages = build(&arguments)?;
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
    let usual = if other_target { "library" } else { "library,command" };
    let chosen = setting("PARTS").unwrap_or_else(|| usual.into());
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
    let messages = build(&[
        "--profile",
        "dist",
        "--package",
        "pagepool-cli",
        "--bin",
        "pagepool",
        "--features",
        "full",
    ])?;
    let (_, after) = messages.split_once("\"executable\":\"").ok_or("cargo names no executable")?;
    Ok(after.split('"').next().unwrap_or(after).into())
}

/// Runs `cargo build`, whose progress goes to standard error, and returns its messages.
fn build(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(ROOT).arg("build").args(arguments);
    cargo.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let done = cargo.output()?;
    match done.status.success() {
        true => Ok(String::from_utf8(done.stdout)?),
        false => Err(format!("{}: {}", cargo.get_program().display(), done.status).into()),
    }
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
