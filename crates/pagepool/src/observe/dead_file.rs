//! A file whose process is not there any more: kept from everybody else, and removed.
//!
//! Lock   whoever publishes locks the file before it has its name, so what can be locked is of nobody. It is
//!        removed while it is locked, and only if the name still leads to it: so no file of a living process
//!        goes.
//! Trust  only what is a published file, or one that was being made and is empty yet, is removed.

use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::sys::published_layout::{Header, MAGIC};
use crate::sys::run_folder::{self, is_being_made};

/// A file that nobody holds, held as long as this lives.
#[derive(Debug)]
pub(crate) struct DeadFile {
    path: PathBuf,
    /// When its process last changed the list of what it publishes; 0: it never published.
    last_sign: u64,
    /// Has the lock.
    _file: File,
}

impl DeadFile {
    /// Takes a file; `None` if somebody holds it, it went meanwhile, or it is something else.
    pub(crate) fn take(path: PathBuf) -> Option<Self> {
        let (file, _) = run_folder::open(&path).ok()?;
        if !run_folder::try_lock(&file) || !leads_to(&path, &file) {
            return None;
        }
        let last_sign = last_sign(&path, &file)?;
        Some(Self { path, last_sign, _file: file })
    }

    /// When its process was last known to run; `None` if it never published.
    pub(crate) fn last_sign(&self) -> Option<u64> {
        (self.last_sign != 0).then_some(self.last_sign)
    }

    /// Removes it; gives its name, unless somebody else removed it.
    pub(crate) fn remove(self) -> Result<Option<PathBuf>, Error> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(Some(self.path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let remedy = || format!("remove {} yourself", self.path.display());
                Err(Error::of_call("unlink", remedy)(error))
            }
        }
    }
}

/// Whether a name is that of an open file.
pub(crate) fn leads_to(path: &Path, file: &File) -> bool {
    let same = |file: std::fs::Metadata| {
        fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
    };
    file.metadata().is_ok_and(same)
}

/// The last sign of a published file; 0 for one that was being made, `None` for anything else.
fn last_sign(path: &Path, file: &File) -> Option<u64> {
    let mut header = [0; size_of::<Header>()];
    let mut len = 0;
    while len < header.len() {
        match file.read_at(&mut header[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    let at = offset_of!(Header, last_sign_ns);
    let last_sign: [u8; 8] = std::array::from_fn(|byte| header[at + byte]);
    // The magic is written last: the rest may be there without it, as long as observers do not see the name.
    let without_magic = if is_being_made(path) { &header[..MAGIC.len()] } else { &header[..] };
    match header.starts_with(&MAGIC) {
        true => Some(u64::from_ne_bytes(last_sign)),
        false => without_magic.iter().all(|&byte| byte == 0).then_some(0),
    }
}
