//! A folder for temporary files.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const TRIES: u32 = 1000;

/// A new folder in the system's temporary folder. Dropping it removes it with its content.
///
/// # Examples
///
/// ```
/// use pagepool_lab::TempFolder;
///
/// let folder = TempFolder::new("pagepool-example")?;
/// std::fs::write(folder.path().join("notes"), "kept until the drop")?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// The name is `name`, the PID and a number. A folder that a killed process left is not used, and stays.
    ///
    /// # Errors
    ///
    /// The system's error when it cannot create the folder.
    pub fn new(name: &str) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        for _ in 0..TRIES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed); // only needs to be unique
            let at = std::env::temp_dir().join(format!("{name}-{}-{number}", std::process::id()));
            match fs::create_dir(&at) {
                Ok(()) => return Ok(Self(at)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        let text = format!("{TRIES} folders `{name}-{}-*` exist already", std::process::id());
        Err(Error::new(ErrorKind::AlreadyExists, text))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a file that stays is in the temporary folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_left_is_passed_over_and_stays() {
        let name = "pagepool-left";
        let first = TempFolder::new(name).expect("a temporary folder");
        let text = first.path().to_str().expect("text").to_owned();
        let (before, number) = text.rsplit_once('-').expect("it has a number");
        // The new folder must have none of the next names; several, in case other tests run.
        let number: u64 = number.parse().expect("digits");
        let left: Vec<_> = (number + 1..number + 50).map(|number| format!("{before}-{number}")).collect();
        left.iter().for_each(|at| fs::create_dir_all(at).expect("it is writable"));
        let second = TempFolder::new(name).expect("a temporary folder");
        assert!(!left.iter().any(|at| Path::new(at) == second.path()), "{second:?}");
        for folder in [first, second] {
            let at = folder.path().to_owned();
            fs::write(at.join("file"), "x").expect("it is writable");
            drop(folder);
            assert!(!at.exists(), "{}", at.display());
        }
        for at in left {
            fs::remove_dir(at).expect("it is there still");
        }
    }
}
