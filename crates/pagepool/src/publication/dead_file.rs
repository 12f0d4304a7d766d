//! A file whose process has ended: locked against others, and removed.
//!
//! Lock   a publisher locks its file before the file gets its name, so a file that can be locked has no
//!        living publisher. It is removed under the lock, and only if the name still leads to it: no file of
//!        a living process is removed.
//! Trust  only published files, and empty ones that were being made, are removed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::sys::published_layout::{Header, MAGIC};
use crate::sys::run_folder::{self, is_being_made};

/// A file of an ended process, locked while this exists.
#[derive(Debug)]
pub struct DeadFile {
    path: PathBuf,
    /// When its process last gave a sign of life; 0: it never published.
    last_sign: u64,
    /// Holds the lock.
    _file: File,
}

impl DeadFile {
    /// Takes a file; `None` if another process has the lock, the file is gone, or it is something else.
    pub fn take(path: PathBuf) -> Option<Self> {
        let (file, _) = run_folder::open(&path).ok()?;
        if !run_folder::try_lock(&file) || !leads_to(&path, &file) {
            return None;
        }
        let last_sign = last_sign(&path, &file)?;
        Some(Self { path, last_sign, _file: file })
    }

    /// When its process last gave a sign of life; `None` if it never published.
    pub(crate) fn last_sign(&self) -> Option<u64> {
        (self.last_sign != 0).then_some(self.last_sign)
    }

    /// Removes the file and returns its name, unless another process removed it.
    pub fn remove(self) -> Result<Option<PathBuf>, Error> {
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

/// Whether a path leads to an open file.
pub(crate) fn leads_to(path: &Path, file: &File) -> bool {
    let same = |file: std::fs::Metadata| {
        fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
    };
    file.metadata().is_ok_and(same)
}

/// The last sign in a published file; 0 for one that was being made, `None` for anything else.
fn last_sign(path: &Path, file: &File) -> Option<u64> {
    let mut header = Vec::new();
    file.take(size_of::<Header>() as u64).read_to_end(&mut header).ok()?;
    header.resize(size_of::<Header>(), 0);
    let at = offset_of!(Header, last_sign_ns);
    let last_sign: [u8; 8] = std::array::from_fn(|byte| header[at + byte]);
    // The magic is written last. The rest may be there without it until observers see the name.
    let without_magic = if is_being_made(path) { &header[..MAGIC.len()] } else { &header[..] };
    match header.starts_with(&MAGIC) {
        true => Some(u64::from_ne_bytes(last_sign)),
        false => without_magic.iter().all(|&byte| byte == 0).then_some(0),
    }
}
