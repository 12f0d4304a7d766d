//! Builds the C library and the command, and lays them out under a prefix:
//! `cargo run -p pagepool-capi --bin pagepool-install`.
//!
//! Settings come from the environment or as arguments, `PREFIX=/opt/pagepool`. It requires cargo and nothing
//! else.
//!
//! * `PREFIX` (default `/usr/local`) and `LIBDIR` (default `PREFIX/lib`)
//! * `DESTDIR` (default none): a directory that stands for `/`, for packagers
//! * `PARTS` (default `library,command`): `library` is the C library, its header and `pagepool.pc`; `command`
//!   is `pagepool`, its manual pages and its shell completions. The command requires the whole repository;
//!   without it the default is `library`.

use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What there is to lay out.
const PARTS: &[&str] = &["library", "command"];

/// What goes where.
struct InstallLayout {
    parts: String,
    destdir: PathBuf,
    prefix: PathBuf,
    libdir: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let layout = InstallLayout::from_environment()?;
    if layout.has("library") {
        layout.install(&build()?)?;
    }
    if layout.has("command") {
        layout.install_command()?;
    }
    println!("pagepool {VERSION} is in {}", layout.on_disk(&layout.prefix).display());
    Ok(())
}

/// A setting: an argument `NAME=value`, or the environment's.
fn setting(name: &str) -> Option<PathBuf> {
    let argument =
        env::args().skip(1).find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()));
    let value = argument.or_else(|| env::var(name).ok())?;
    (!value.is_empty()).then(|| value.into())
}

impl InstallLayout {
    fn from_environment() -> Result<Self, Box<dyn Error>> {
        let known =
            |arg: &str| ["PREFIX=", "LIBDIR=", "DESTDIR=", "PARTS="].iter().any(|name| arg.starts_with(name));
        if let Some(unknown) = env::args().skip(1).find(|arg| !known(arg)) {
            return Err(format!("{unknown}: only PREFIX=, LIBDIR=, DESTDIR= and PARTS= are known").into());
        }
        let prefix = setting("PREFIX").unwrap_or_else(|| "/usr/local".into());
        let libdir = setting("LIBDIR").unwrap_or_else(|| prefix.join("lib"));
        for (name, path) in [("PREFIX", &prefix), ("LIBDIR", &libdir)] {
            if !path.is_absolute() {
                return Err(format!("{name} is {}, but must be an absolute path", path.display()).into());
            }
        }
        Ok(Self { parts: parts()?, destdir: setting("DESTDIR").unwrap_or_default(), prefix, libdir })
    }

    fn has(&self, part: &str) -> bool {
        self.parts.split(',').any(|chosen| chosen == part)
    }

    /// Where a path of the installed system lies now.
    fn on_disk(&self, path: &Path) -> PathBuf {
        if self.destdir.as_os_str().is_empty() {
            return path.into();
        }
        self.destdir.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn install(&self, built: &Path) -> Result<(), Box<dyn Error>> {
        let libdir = self.on_disk(&self.libdir);
        let include = self.on_disk(&self.prefix.join("include"));
        let pkgconfig = libdir.join("pkgconfig");
        for folder in [&include, &pkgconfig] {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let versioned = format!("libpagepool.so.{VERSION}");
        copy(&built.join("libpagepool_c.so"), &libdir.join(&versioned), 0o755)?;
        link(&versioned, &libdir.join("libpagepool.so.0"))?;
        link("libpagepool.so.0", &libdir.join("libpagepool.so"))?;
        copy(&built.join("libpagepool_c.a"), &libdir.join("libpagepool.a"), 0o644)?;
        copy(&Path::new(ROOT).join("include/pagepool.h"), &include.join("pagepool.h"), 0o644)?;
        fs::write(pkgconfig.join("pagepool.pc"), self.pkgconfig()?)?;
        Ok(())
    }

    /// Builds the command, which lays itself out.
    fn install_command(&self) -> Result<(), Box<dyn Error>> {
        let mut command = cargo();
        command.args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "pagepool-cli",
            "--",
            "install",
            "--prefix",
        ]);
        command.arg(&self.prefix);
        if !self.destdir.as_os_str().is_empty() {
            command.arg("--destdir").arg(std::path::absolute(&self.destdir)?);
        }
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(format!("pagepool install: {status}").into()) }
    }

    fn pkgconfig(&self) -> Result<String, Box<dyn Error>> {
        let template = fs::read_to_string(Path::new(ROOT).join("pagepool.pc.in"))?;
        let libdir = match self.libdir.strip_prefix(&self.prefix) {
            Ok(below) => format!("${{prefix}}/{}", below.display()),
            Err(_) => self.libdir.display().to_string(),
        };
        let prefix = self.prefix.display().to_string();
        Ok(template.replace("@PREFIX@", &prefix).replace("@LIBDIR@", &libdir).replace("@VERSION@", VERSION))
    }
}

/// The parts that are asked for, checked.
fn parts() -> Result<String, String> {
    let whole = Path::new(ROOT).join("../pagepool-cli/Cargo.toml").exists();
    let chosen = setting("PARTS").map(|parts| parts.to_string_lossy().into_owned());
    let chosen = chosen.unwrap_or_else(|| if whole { "library,command".into() } else { "library".into() });
    match chosen.split(',').find(|part| !PARTS.contains(part)) {
        Some(unknown) => Err(format!("PARTS names {unknown:?}, but the parts are library and command")),
        None => Ok(chosen),
    }
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(ROOT);
    command
}

/// Builds the libraries, and says where they are. In a profile of their own, for errors inside must not abort
/// C programs.
fn build() -> Result<PathBuf, Box<dyn Error>> {
    let mut command = cargo();
    command.args(["build", "--profile", "capi", "--package", "pagepool-capi", "--lib"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let done = command.stderr(std::process::Stdio::inherit()).output()?;
    if !done.status.success() {
        return Err(format!("cargo build: {}", done.status).into());
    }
    let messages = String::from_utf8(done.stdout)?;
    let end = "/libpagepool_c.so";
    let library =
        messages.split('"').find(|word| word.ends_with(end)).ok_or("cargo names no libpagepool_c.so")?;
    Ok(library.strip_suffix(end).unwrap_or(library).into())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), Box<dyn Error>> {
    let _ = fs::remove_file(to); // a program that runs keeps the old one
    fs::copy(from, to).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn link(to: &str, at: &Path) -> Result<(), Box<dyn Error>> {
    let _ = fs::remove_file(at);
    symlink(to, at).map_err(|error| format!("{}: {error}", at.display()).into())
}
