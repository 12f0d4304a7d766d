//! The programs of this machine that guests require.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::GuestError;

/// The programs for guests, and the folder of kernels.
#[derive(Clone, Debug)]
pub struct HostTools {
    /// QEMU's program: `$GUEST_QEMU`, or `qemu-system-x86_64`.
    pub qemu: PathBuf,
    /// A statically linked busybox.
    pub busybox: PathBuf,
    /// Where kernels are: `$GUEST_CACHE`, or `pagepool-guest` in the user's cache folder.
    pub cache: PathBuf,
}

impl HostTools {
    /// Finds the programs.
    ///
    /// # Errors
    ///
    /// [`GuestError::Missing`] names the Debian packages of the missing programs.
    pub fn find() -> Result<Self, GuestError> {
        let qemu = std::env::var_os("GUEST_QEMU").map_or("qemu-system-x86_64".into(), PathBuf::from);
        let (qemu, busybox) = (in_path(&qemu), static_busybox());
        let mut missing = Vec::new();
        for (is_there, package) in [
            (qemu.is_some(), "qemu-system-x86"),
            (busybox.is_some(), "busybox-static"),
            (in_path(Path::new("xz")).is_some(), "xz-utils"),
        ] {
            if !is_there {
                missing.push(package);
            }
        }
        match (qemu, busybox) {
            (Some(qemu), Some(busybox)) if missing.is_empty() => Ok(Self { qemu, busybox, cache: cache() }),
            _ => Err(GuestError::Missing(format!(
                "packages for guests are missing; run as root: apt-get install --no-install-recommends {}",
                missing.join(" ")
            ))),
        }
    }

    /// QEMU's major version; 0 if unknown.
    pub fn qemu_version(&self) -> u32 {
        let said = Command::new(&self.qemu).arg("--version").output();
        let said =
            said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let number = said.split_whitespace().skip_while(|word| *word != "version").nth(1);
        number.and_then(|number| number.split('.').next()?.parse().ok()).unwrap_or(0)
    }
}

fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("GUEST_CACHE") {
        return cache.into();
    }
    let user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
    user.unwrap_or_else(home).join("pagepool-guest")
}

/// As a shell does.
pub(super) fn in_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A desktop's busybox may need libraries, which a starting guest does not have.
fn static_busybox() -> Option<PathBuf> {
    let there = in_path(Path::new("busybox"))?;
    let linked = Command::new("ldd").arg(&there).output();
    (!linked.is_ok_and(|output| output.status.success())).then_some(there)
}
