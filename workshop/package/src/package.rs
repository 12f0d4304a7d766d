//! Stages what is installed, and divides it among packages.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::Installation;
use crate::settings::{check_arguments, setting};
use crate::tool::output_of;

const VERSION: &str = env!("CARGO_PKG_VERSION");

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SONAME_NUMBER: &str = env!("PAGEPOOL_SONAME_NUMBER");

/// The package of the shared library. Libraries of two sonames can be installed beside each other.
const LIBRARY: &str = concat!("libpagepool", env!("PAGEPOOL_SONAME_NUMBER"));

struct Package {
    name: &'static str,
    section: &'static str,
    /// The beginnings of its staged files' paths below `usr`; `LIBDIR` is the folder of libraries.
    files: &'static [&'static str],
    /// Its programs and libraries, whose symbols determine the packages that they need.
    binaries: &'static [&'static str],
    depends: &'static [&'static str],
    summary: &'static str,
    about: &'static str,
}

/// A file goes to the first package that has the beginning of its path.
const PACKAGES: &[Package] = &[
    Package {
        name: LIBRARY,
        section: "libs",
        files: &[concat!("LIBDIR/", env!("PAGEPOOL_SONAME"))],
        binaries: &[concat!("LIBDIR/", env!("PAGEPOOL_SONAME"))],
        depends: &["${shlibs:Depends}"],
        summary: "user-space page pool for packet buffers (shared library)",
        about: "",
    },
    Package {
        name: "libpagepool-dev",
        section: "libdevel",
        files: &["include", "LIBDIR", "share/man/man3"],
        binaries: &[],
        depends: &["${Library} (= ${Version})", "libc6-dev | libc-dev"],
        summary: "user-space page pool for packet buffers (development files)",
        about: " .\n This package has the header, the static library, what pkg-config, Meson and\n \
                CMake read, and a manual page for each function.\n",
    },
    Package {
        name: "pagepool",
        section: "net",
        files: &["bin", "share"],
        binaries: &["bin/pagepool"],
        depends: &["${shlibs:Depends}"],
        summary: "user-space page pool for packet buffers (command)",
        about: " .\n This package has the command: it receives, echoes, forwards and generates\n \
                packets over AF_XDP, and shows pools. It needs none of the libraries.\n",
    },
];

const ABOUT: &str = " Each receive queue has its own pool of pages that stay mapped for a device. One\n \
                     thread allocates from it without a lock, and any thread returns buffers to it.\n";

struct Builder {
    /// The folder of the staged files, and of the packages before they are built.
    work: PathBuf,
    out: PathBuf,
    time: String,
}

/// Builds the packages that the settings name. The program's own documentation lists the settings.
///
/// # Errors
///
/// If a setting is wrong, or if a tool is missing or fails.
pub fn package() -> Result<(), Box<dyn Error>> {
    let formats = setting("FORMATS").unwrap_or_else(|| "deb,tar".into());
    if let Some(unknown) = formats.split(',').find(|format| !["deb", "tar"].contains(format)) {
        return Err(format!("FORMATS names {unknown:?}, but the formats are deb and tar").into());
    }
    check_arguments(&["OUT", "FORMATS"])?;
    let builder = Builder::new()?;
    for format in formats.split(',') {
        if format == "deb" { builder.debs()? } else { builder.tarball()? }
    }
    fs::remove_dir_all(&builder.work)?;
    Ok(())
}

fn maintainer() -> String {
    let name = setting("DEBFULLNAME").unwrap_or_else(|| "The pagepool developers".into());
    let address = setting("DEBEMAIL").unwrap_or_else(|| "pagepool@example.org".into());
    format!("{name} <{address}>")
}

impl Builder {
    fn new() -> Result<Self, Box<dyn Error>> {
        let out = setting("OUT").map_or_else(|| Path::new(ROOT).join("../../target/packages"), PathBuf::from);
        fs::create_dir_all(&out).map_err(|error| format!("OUT is {}: {error}", out.display()))?;
        let out = fs::canonicalize(out)?;
        let work = out.join("work");
        if work.exists() {
            fs::remove_dir_all(&work)?; // left by a run that was interrupted
        }
        fs::create_dir(&work)?;
        let commit = || line_of(Command::new("git").args(["-C", ROOT, "log", "-1", "--format=%ct"]));
        let time = env::var("SOURCE_DATE_EPOCH").or_else(|_| commit())?;
        Ok(Self { work, out, time: time.trim().to_owned() })
    }

    /// Installs into a new folder; returns it.
    fn staged(&self, name: &str, prefix: &str, libdir: &str) -> Result<PathBuf, Box<dyn Error>> {
        let at = self.work.join(name);
        let base = Installation::of_library(at.clone(), prefix);
        Installation { parts: "library,command".into(), libdir: libdir.into(), ..base }.run()?;
        Ok(at)
    }

    fn debs(&self) -> Result<(), Box<dyn Error>> {
        let architecture = dpkg(Command::new("dpkg").arg("--print-architecture"))?;
        let multiarch = dpkg(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
        let libdir = format!("lib/{multiarch}");
        let staged = self.staged("staged", "/usr", &format!("/usr/{libdir}"))?.join("usr");
        strip(&staged.join(&libdir).join(format!("libpagepool.so.{VERSION}")), "--strip-unneeded")?;
        strip(&staged.join(&libdir).join("libpagepool.a"), "--strip-debug")?;
        strip(&staged.join("bin/pagepool"), "--strip-all")?;
        for package in PACKAGES {
            let root = self.work.join(package.name);
            for file in package.files {
                take(&staged, &root.join("usr"), &file.replace("LIBDIR", &libdir))?;
            }
            self.finish(package, &root, &libdir, &architecture)?;
        }
        let left = files_below(&staged)?;
        if left.is_empty() { Ok(()) } else { Err(format!("no package contains {left:?}").into()) }
    }

    /// Adds what Debian's policy requires, and builds the package.
    fn finish(
        &self,
        package: &Package,
        root: &Path,
        libdir: &str,
        architecture: &str,
    ) -> Result<(), Box<dyn Error>> {
        let doc = root.join("usr/share/doc").join(package.name);
        fs::create_dir_all(&doc)?;
        fs::write(doc.join("copyright"), copyright()?)?;
        fs::write(doc.join("changelog.Debian"), self.changelog()?)?;
        fs::copy(Path::new(ROOT).join("../../CHANGELOG.md"), doc.join("changelog"))?;
        for file in files_below(root)? {
            let name = root.join(&file);
            if file.contains("share/man/") || file.contains("/changelog") {
                line_of(Command::new("gzip").args(["-9n"]).arg(&name))?;
            }
        }
        let control = root.join("DEBIAN");
        fs::create_dir(&control)?;
        let depends = self.depends(package, root, libdir)?;
        fs::write(control.join("control"), control_file(package, architecture, &depends, size_of(root)?))?;
        fs::write(control.join("md5sums"), checksums(root)?)?;
        if package.name == LIBRARY {
            let shlibs = format!("libpagepool {SONAME_NUMBER} {LIBRARY} (>= {VERSION})\n");
            fs::write(control.join("shlibs"), shlibs)?;
            fs::write(control.join("triggers"), "activate-noawait ldconfig\n")?;
        }
        set_modes(root)?;
        let file = self.out.join(format!("{}_{VERSION}-1_{architecture}.deb", package.name));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "--uniform-compression", "-Zxz", "--build"]).arg(root).arg(&file);
        dpkg(build.env("SOURCE_DATE_EPOCH", &self.time))?;
        println!("{}", file.display());
        Ok(())
    }

    fn changelog(&self) -> Result<String, Box<dyn Error>> {
        let date = line_of(
            Command::new("date").args(["-u", "-R", "-d", &format!("@{}", self.time)]).env("LC_ALL", "C"),
        )?;
        Ok(format!(
            "pagepool ({VERSION}-1) unstable; urgency=medium\n\n  * Built by pagepool-package. changelog.gz \
             has the changes.\n\n -- {}  {date}\n",
            maintainer()
        ))
    }

    /// The dependencies of a package, with the versions whose symbols its binaries use.
    fn depends(&self, package: &Package, root: &Path, libdir: &str) -> Result<String, Box<dyn Error>> {
        let mut depends = Vec::new();
        for entry in package.depends {
            if *entry != "${shlibs:Depends}" {
                depends.push(
                    entry.replace("${Library}", LIBRARY).replace("${Version}", &format!("{VERSION}-1")),
                );
                continue;
            }
            let at = self.work.join("shlibs");
            fs::create_dir_all(at.join("debian"))?; // dpkg-shlibdeps looks for a source package
            fs::write(
                at.join("debian/control"),
                format!("Source: pagepool\n\nPackage: {}\nArchitecture: any\n", package.name),
            )?;
            let mut needs = Command::new("dpkg-shlibdeps");
            needs.current_dir(&at).arg("-O");
            needs.args(
                package.binaries.iter().map(|file| root.join("usr").join(file.replace("LIBDIR", libdir))),
            );
            let line = dpkg(&mut needs)?;
            depends.push(line.strip_prefix("shlibs:Depends=").unwrap_or(&line).to_owned());
        }
        Ok(depends.join(", "))
    }

    /// Builds a tarball of all files below one folder, whose name has version and system. `pagepool.pc` finds
    /// them wherever it is unpacked.
    fn tarball(&self) -> Result<(), Box<dyn Error>> {
        let system = format!("{}-{}", env::consts::ARCH, env::consts::OS);
        let name = format!("pagepool-{VERSION}-{system}");
        let prefix = format!("/{name}");
        let staged = self.staged("tarball", &prefix, &format!("{prefix}/lib"))?;
        let pc = staged.join(&name).join("lib/pkgconfig/pagepool.pc");
        let text = fs::read_to_string(&pc)?;
        fs::write(&pc, text.replace(&format!("prefix={prefix}\n"), "prefix=${pcfiledir}/../..\n"))?;
        strip(&staged.join(&name).join("lib").join(format!("libpagepool.so.{VERSION}")), "--strip-unneeded")?;
        strip(&staged.join(&name).join("lib/libpagepool.a"), "--strip-debug")?;
        strip(&staged.join(&name).join("bin/pagepool"), "--strip-all")?;
        let doc = staged.join(&name).join("share/doc/pagepool");
        fs::create_dir_all(&doc)?;
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
            fs::copy(Path::new(ROOT).join("../..").join(file), doc.join(file))?;
        }
        set_modes(&staged)?;
        let file = self.out.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&staged).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.time)).args(["--use-compress-program=gzip -9n", "-cf"]);
        line_of(tar.arg(&file).arg(&name))?;
        println!("{}", file.display());
        Ok(())
    }
}

/// Runs a program that must succeed; returns its standard output without the last newline.
fn line_of(command: &mut Command) -> Result<String, String> {
    output_of(command).map(|text| text.trim().to_owned())
}

/// Runs a program of Debian's dpkg-dev; returns its standard output.
fn dpkg(command: &mut Command) -> Result<String, Box<dyn Error>> {
    line_of(command).map_err(|error| {
        format!(
            "{error}. The format deb requires Debian's dpkg-dev: apt-get install dpkg-dev, or FORMATS=tar"
        )
        .into()
    })
}

fn strip(file: &Path, what: &str) -> Result<(), Box<dyn Error>> {
    line_of(
        Command::new("strip")
            .arg(what)
            .args(["--remove-section=.comment", "--remove-section=.note"])
            .arg(file),
    )?;
    Ok(())
}

/// Moves the files whose paths begin with `path` from one folder to the other.
fn take(from: &Path, to: &Path, path: &str) -> Result<(), Box<dyn Error>> {
    for file in files_below(from)?.iter().filter(|file| file.starts_with(path)) {
        let at = to.join(file);
        fs::create_dir_all(at.parent().unwrap_or(to))?;
        fs::rename(from.join(file), at)?;
    }
    Ok(())
}

/// The files and links below a folder, sorted.
fn files_below(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path().strip_prefix(folder)?.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn set_modes(root: &Path) -> Result<(), Box<dyn Error>> {
    let mut folders = vec![root.to_owned()];
    while let Some(at) = folders.pop() {
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(at)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let mode =
                    if entry.path().parent().is_some_and(|at| at.ends_with("bin")) { 0o755 } else { 0o644 };
                fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

/// The installed size of the package in KiB.
fn size_of(root: &Path) -> Result<u64, Box<dyn Error>> {
    let mut size = 0;
    for file in files_below(root)? {
        size += fs::symlink_metadata(root.join(file))?.len().div_ceil(1024);
    }
    Ok(size)
}

fn checksums(root: &Path) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for file in files_below(root)?.iter().filter(|file| !file.starts_with("DEBIAN/")) {
        if fs::symlink_metadata(root.join(file))?.is_file() {
            text += &line_of(Command::new("md5sum").arg(file).current_dir(root))?;
            text += "\n";
        }
    }
    Ok(text)
}

fn control_file(package: &Package, architecture: &str, depends: &str, size: u64) -> String {
    let mut text = String::new();
    let mut field =
        |name: &str, value: &str| writeln!(text, "{name}: {value}").expect("a string takes everything");
    field("Package", package.name);
    field("Source", "pagepool");
    field("Version", &format!("{VERSION}-1"));
    field("Architecture", architecture);
    field("Maintainer", &maintainer());
    field("Installed-Size", &size.to_string());
    field("Depends", depends);
    if package.section.starts_with("lib") {
        field("Multi-Arch", "same");
    }
    field("Section", package.section);
    field("Priority", "optional");
    field("Description", package.summary);
    text + ABOUT + package.about
}

fn copyright() -> Result<String, Box<dyn Error>> {
    let read = |name: &str| fs::read_to_string(Path::new(ROOT).join("../..").join(name));
    let mit = read("LICENSE-MIT")?;
    let (holders, terms): (Vec<&str>, Vec<&str>) =
        mit.lines().partition(|line| line.starts_with("Copyright"));
    let indented = |line: &&str| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") };
    let terms: String =
        terms.iter().skip_while(|line| line.is_empty() || line.contains("License")).map(indented).collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: pagepool\n\nFiles: *\nCopyright: {}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{terms}\nLicense: Apache-2.0\n \
         On Debian systems, the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n",
        holders
            .first()
            .map_or("", |line| line.trim_start_matches("Copyright (c) ").trim_start_matches("Copyright "))
    ))
}
