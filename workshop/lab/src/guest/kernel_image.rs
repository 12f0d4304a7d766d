//! Debian kernels, which apt fetches into a cache.
//!
//! Each Debian suite has one current kernel, the package behind `linux-image-amd64`. apt verifies downloads
//! by Debian's signatures, in its own folder: the machine's lists, sources and installed packages stay
//! unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::GuestError;
use super::host_tools::{HostTools, in_path};

/// Linux versions, with the Debian suites that have them.
pub const SUITES: [(&str, &str); 4] =
    [("5.10", "bullseye"), ("6.1", "bookworm"), ("6.12", "trixie"), ("7.3", "trixie-backports")];

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// For hardware that no guest has; they are most of a kernel's size.
const LEFT_OUT: [&str; 12] = [
    "sound",
    "drivers/gpu",
    "drivers/media",
    "drivers/staging",
    "drivers/usb",
    "drivers/iio",
    "drivers/hid",
    "drivers/scsi",
    "drivers/infiniband",
    "drivers/input",
    "drivers/mmc",
    "drivers/net/wireless",
];

/// A kernel that a guest can boot: a folder with `vmlinuz` and `lib/modules/VERSION`.
#[derive(Clone, Debug)]
pub struct KernelImage {
    folder: PathBuf,
}

impl KernelImage {
    /// Finds a kernel by name: a version of [`SUITES`], a Debian suite, or a folder. Downloads a suite's
    /// kernel if it is not in the cache; never updates it.
    ///
    /// # Errors
    ///
    /// [`GuestError::Missing`] if it cannot be downloaded here, [`GuestError::Failed`] if the suite has none.
    pub fn find(tools: &HostTools, name: &str) -> Result<Self, GuestError> {
        if let Some(kernel) = Self::cached(tools, name) {
            return Ok(kernel);
        }
        let kernel = Self { folder: tools.cache.join("kernels").join(suite(name)) };
        Apt::new(tools, suite(name))?.fetch(&kernel.folder)?;
        Ok(kernel)
    }

    /// Finds a kernel without a download; `None` if it is not in the cache.
    pub fn cached(tools: &HostTools, name: &str) -> Option<Self> {
        let given = Some(PathBuf::from(name)).filter(|_| name.contains('/'));
        let folders = given.into_iter().chain([tools.cache.join("kernels").join(suite(name))]);
        folders.map(|folder| Self { folder }).find(|kernel| kernel.image().exists())
    }

    /// The file that QEMU boots.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The folder of its modules.
    ///
    /// # Errors
    ///
    /// [`GuestError::Failed`] if there is none.
    pub fn modules(&self) -> Result<PathBuf, GuestError> {
        first_below(&self.folder.join("lib/modules"))
            .ok_or_else(|| GuestError::Failed(format!("{} has no lib/modules", self.folder.display())))
    }
}

fn suite(name: &str) -> &str {
    SUITES.iter().find(|(version, _)| *version == name).map_or(name, |(_, suite)| suite)
}

/// apt for one suite, separate from the machine's own.
struct Apt {
    suite: String,
    /// Its lists and its log.
    at: PathBuf,
}

impl Apt {
    fn new(tools: &HostTools, suite: &str) -> Result<Self, GuestError> {
        if in_path(Path::new("apt-get")).is_none() || !Path::new(KEYRING).exists() {
            let text = format!("fetching kernels requires apt-get and {KEYRING}; one of the two is missing");
            return Err(GuestError::Missing(text));
        }
        let at = tools.cache.join("apt").join(suite);
        let apt = Self { suite: suite.to_owned(), at };
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            create_folder(&apt.at.join(folder))?;
        }
        let path = if suite.ends_with("-security") { "debian-security" } else { "debian" };
        let source = format!("deb [signed-by={KEYRING}] {}/{path} {suite} main\n", mirror());
        for (file, text) in [("sources.list", &*source), ("status", "")] {
            let file = apt.at.join(file);
            fs::write(&file, text).map_err(|error| GuestError::file("writing", &file, &error))?;
        }
        Ok(apt)
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(tool);
        command.arg("-q").stdin(Stdio::null());
        for (name, path) in [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ] {
            command.arg("-o").arg(format!("{name}={}", self.at.join(path).display()));
        }
        for option in [
            "Dir::Etc::sourceparts=-",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
            "APT::Update::Error-Mode=any",
            "Acquire::Retries=2",
            "Acquire::http::Timeout=30",
            "APT::Sandbox::User=root",
        ] {
            command.args(["-o", option]);
        }
        command
    }

    fn fetch(&self, to: &Path) -> Result<(), GuestError> {
        self.run(self.command("apt-get").arg("update"))?;
        let new = to.with_extension("new");
        let _ = fs::remove_dir_all(&new); // left by a killed run
        create_folder(&new)?;
        for package in self.packages()? {
            self.run(self.command("apt-get").arg("download").arg(&package).current_dir(&new))?;
        }
        for package in fs::read_dir(&new).into_iter().flatten().flatten().map(|entry| entry.path()) {
            self.run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(new.join("root")))?;
        }
        lay_out(&new)?;
        fs::rename(new.join("kernel"), to).map_err(|error| GuestError::file("making", to, &error))?;
        let _ = fs::remove_dir_all(&new); // everything needed was moved
        Ok(())
    }

    /// The package behind `linux-image-amd64`, and those with its parts: Linux 7 has several.
    fn packages(&self) -> Result<Vec<String>, GuestError> {
        let wanted = |name: &str, prefixes: &[&str]| -> Vec<String> {
            let needs = self.depends(name);
            let names = needs.split(',').filter_map(|need| need.split_whitespace().next());
            let starts = |name: &&str| {
                prefixes.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(digit_first))
            };
            names.filter(starts).map(str::to_owned).collect()
        };
        let Some(image) = wanted("linux-image-amd64", &["linux-image-"]).into_iter().next() else {
            return Err(GuestError::Failed(format!("the suite {} has no linux-image-amd64", self.suite)));
        };
        let parts = wanted(&image, &["linux-modules-", "linux-binary-", "linux-base-"]);
        Ok([image].into_iter().chain(parts).collect())
    }

    fn depends(&self, package: &str) -> String {
        let shown = self.command("apt-cache").args(["show", "--no-all-versions", package]).output();
        let shown =
            shown.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let line = shown.lines().find_map(|line| line.strip_prefix("Depends: "));
        line.unwrap_or_default().to_owned()
    }

    /// The tool's output goes to a file, which the error names.
    fn run(&self, command: &mut Command) -> Result<(), GuestError> {
        let log = self.at.join("log");
        let file = fs::OpenOptions::new().create(true).append(true).open(&log);
        let file = file.map_err(|error| GuestError::file("writing", &log, &error))?;
        let errors = file.try_clone().map_err(|error| GuestError::file("writing", &log, &error))?;
        let status = command.stdout(file).stderr(errors).status();
        if status.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        let text = format!("cannot download a kernel of Debian's {}; see {}", self.suite, log.display());
        Err(GuestError::Missing(text))
    }
}

/// `$GUEST_MIRROR`, or the machine's apt source.
fn mirror() -> String {
    if let Ok(mirror) = std::env::var("GUEST_MIRROR") {
        return mirror.trim_end_matches('/').to_owned();
    }
    let said = Command::new("apt-get").args(["indextargets", "--format", "$(SITE)"]).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let site = said.lines().find_map(|site| site.strip_suffix("/debian"));
    site.unwrap_or("http://deb.debian.org").to_owned()
}

/// Arranges the packages' files in `root` as `kernel`: suites differ in their paths.
fn lay_out(new: &Path) -> Result<(), GuestError> {
    let (root, kernel) = (new.join("root"), new.join("kernel"));
    let no_modules = || GuestError::Failed(format!("{} has no modules", root.display()));
    let folders = ["lib/modules", "usr/lib/modules"].map(|at| first_below(&root.join(at)));
    let tree = folders.into_iter().flatten().next().ok_or_else(no_modules)?;
    for folder in LEFT_OUT {
        let _ = fs::remove_dir_all(tree.join("kernel").join(folder)); // not every kernel has it
    }
    let version = tree.file_name().ok_or_else(no_modules)?.to_owned();
    create_folder(&kernel.join("lib/modules"))?;
    let in_boot = root.join("boot").join(format!("vmlinuz-{}", version.to_string_lossy()));
    let image = if in_boot.exists() { in_boot } else { tree.join("vmlinuz") };
    for (from, to) in [(image, "vmlinuz".into()), (tree, Path::new("lib/modules").join(version))] {
        fs::rename(&from, kernel.join(to)).map_err(|error| GuestError::file("moving", &from, &error))?;
    }
    Ok(())
}

fn first_below(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| path.is_dir())
}

fn digit_first(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

fn create_folder(folder: &Path) -> Result<(), GuestError> {
    fs::create_dir_all(folder).map_err(|error| GuestError::file("making", folder, &error))
}
