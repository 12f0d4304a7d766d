//! Builds the C library and lays it out under a prefix: `cargo run -p pagepool-capi --bin pagepool-install`.
//!
//! `PREFIX` (default `/usr/local`), `LIBDIR` (default `PREFIX/lib`) and `DESTDIR` (default none: a directory that stands for
//! `/`, for packagers) come from the environment or as arguments, `PREFIX=/opt/pagepool`. It needs cargo and nothing else.

use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where things go.
struct Layout {
    destdir: PathBuf,
    prefix: PathBuf,
    libdir: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let layout = Layout::from_environment()?;
    let built = build()?;
    layout.install(&built)?;
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

impl Layout {
    fn from_environment() -> Result<Self, Box<dyn Error>> {
        let known = |arg: &str| ["PREFIX=", "LIBDIR=", "DESTDIR="].iter().any(|name| arg.starts_with(name));
        if let Some(unknown) = env::args().skip(1).find(|arg| !known(arg)) {
            return Err(format!("{unknown}: only PREFIX=, LIBDIR= and DESTDIR= are known").into());
        }
        let prefix = setting("PREFIX").unwrap_or_else(|| "/usr/local".into());
        let libdir = setting("LIBDIR").unwrap_or_else(|| prefix.join("lib"));
        for (name, path) in [("PREFIX", &prefix), ("LIBDIR", &libdir)] {
            if !path.is_absolute() {
                return Err(format!("{name} is {}, but must be an absolute path", path.display()).into());
            }
        }
        Ok(Self { destdir: setting("DESTDIR").unwrap_or_default(), prefix, libdir })
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

/// Builds the libraries, and says where they are. In a profile of their own, for errors inside must not abort C programs.
fn build() -> Result<PathBuf, Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", "capi", "--package", "pagepool-capi", "--lib"]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(ROOT);
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
