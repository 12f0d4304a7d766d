//! The files of a guest: a cpio archive (format `newc`) that the kernel unpacks into memory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::GuestError;
use crate::temp_folder::TempFolder;

/// Larger programs lose their debug information if `strip` is available: a guest holds its files in memory,
/// and a test program has ten times as much of it as code.
const STRIPPED_FROM: u64 = 4 << 20;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;

/// By path in the guest, without the leading slash.
#[derive(Default)]
pub(super) struct GuestFiles {
    entries: BTreeMap<String, (u32, Vec<u8>)>,
}

impl GuestFiles {
    pub fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for folder in ends.map(|end| &path[..end]).filter(|folder| !folder.is_empty()) {
            self.entries.entry(folder.to_owned()).or_insert((FOLDER, Vec::new()));
        }
    }

    pub fn program(&mut self, path: &str, bytes: Vec<u8>) {
        self.insert(path, PROGRAM, bytes);
    }

    pub fn plain(&mut self, path: &str, bytes: Vec<u8>) {
        self.insert(path, PLAIN, bytes);
    }

    fn insert(&mut self, path: &str, kind: u32, bytes: Vec<u8>) {
        let path = path.trim_matches('/');
        self.folder(path.rsplit_once('/').map_or("", |(folder, _)| folder));
        self.entries.insert(path.to_owned(), (kind, bytes));
    }

    /// Adds a file of this machine, for a program with its libraries; or a whole folder.
    pub fn copy(&mut self, host: &Path, guest: &str) -> Result<(), GuestError> {
        let failed = |error| GuestError::file("reading", host, &error);
        if host.is_dir() {
            self.folder(guest);
            for entry in fs::read_dir(host).map_err(failed)?.flatten() {
                self.copy(&entry.path(), &format!("{guest}/{}", entry.file_name().to_string_lossy()))?;
            }
            return Ok(());
        }
        let about = fs::metadata(host).map_err(failed)?;
        if about.permissions().mode() & 0o111 == 0 {
            self.plain(guest, fs::read(host).map_err(failed)?);
            return Ok(());
        }
        let large = about.len() > STRIPPED_FROM;
        let bytes = if large { without_debug(host, "strip") } else { fs::read(host) };
        self.program(guest, bytes.map_err(failed)?);
        for library in libraries(host) {
            if !self.entries.contains_key(library.trim_matches('/')) {
                let bytes = fs::read(&library);
                let bytes = bytes.map_err(|error| GuestError::file("reading", library.as_ref(), &error))?;
                self.program(&library, bytes);
            }
        }
        Ok(())
    }

    /// For each file: a header of 13 numbers of 8 hexadecimal digits, the name, and the bytes, padded to 4
    /// bytes.
    pub fn write(&self, to: &mut dyn Write) -> std::io::Result<()> {
        let end = (PLAIN, Vec::new());
        let entries = self.entries.iter().map(|(path, entry)| (&**path, entry));
        for (number, (path, (kind, bytes))) in entries.chain([("TRAILER!!!", &end)]).enumerate() {
            let links = if *kind == FOLDER { 2 } else { 1 };
            write!(to, "070701")?;
            let sizes = [bytes.len(), 0, 0, 0, 0, path.len() + 1, 0];
            for field in [number + 1, *kind as usize, 0, 0, links, 0].into_iter().chain(sizes) {
                write!(to, "{field:08x}")?;
            }
            to.write_all(path.as_bytes())?;
            // The header has 110 bytes, and the name ends with a 0.
            to.write_all(&[0; 4][..1 + padding(110 + path.len() + 1)])?;
            to.write_all(bytes)?;
            to.write_all(&[0; 3][..padding(bytes.len())])?;
        }
        Ok(())
    }
}

fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// A program without debug information, or unchanged if `strip` is missing or fails. The output goes through
/// a file: `strip` removes the path that it writes to, whatever it is.
fn without_debug(program: &Path, strip: &str) -> std::io::Result<Vec<u8>> {
    let folder = TempFolder::new("guest-strip")?;
    let output = folder.path().join("program");
    let mut command = Command::new(strip);
    command.arg("--strip-debug").arg("-o").arg(&output).arg(program);
    let stripped = command.stdin(Stdio::null()).output().is_ok_and(|ended| ended.status.success());
    fs::read(if stripped { &output } else { program })
}

/// As `ldd` lists them; none for a static program or a script.
fn libraries(program: &Path) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output();
    let said = output.ok().filter(|output| output.status.success());
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let paths = said.split_whitespace().filter(|word| word.starts_with('/') && word.contains(".so"));
    paths.map(|path| path.trim_end_matches(':').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test program, its bytes, and whether the devices exist that no tool may touch.
    fn before() -> (std::path::PathBuf, Vec<u8>, Vec<bool>) {
        let program = std::env::current_exe().expect("it runs");
        let bytes = fs::read(&program).expect("it is there");
        (program, bytes, devices())
    }

    fn devices() -> Vec<bool> {
        let there = |name: &str| fs::symlink_metadata(Path::new("/dev").join(name)).is_ok();
        ["null", "fd", "stdin", "stdout", "stderr"].map(there).to_vec()
    }

    #[test]
    fn a_stripped_copy_is_small_and_the_program_is_unchanged() {
        let (program, bytes, devices_before) = before();
        if Command::new("strip").arg("--version").output().is_err() {
            return println!("SKIP a_stripped_copy_is_small_and_the_program_is_unchanged: no strip");
        }
        let stripped = without_debug(&program, "strip").expect("it is there");
        assert!(stripped.starts_with(b"\x7fELF"));
        assert!(stripped.len() < bytes.len() / 2, "{} of {} bytes", stripped.len(), bytes.len());
        assert!(fs::read(&program).expect("it is there") == bytes, "the program itself has changed");
        assert_eq!(devices(), devices_before);
    }

    #[test]
    fn a_program_goes_as_it_is_where_strip_is_missing_or_fails() {
        let (program, bytes, devices_before) = before();
        for strip in ["/nonexistent/strip", "false"] {
            assert!(without_debug(&program, strip).expect("it is there") == bytes, "{strip}");
        }
        assert_eq!(devices(), devices_before);
    }

    #[test]
    fn an_archive_has_every_folder_before_its_files() {
        let mut files = GuestFiles::default();
        files.plain("/a/b/c", b"12345".to_vec());
        files.program("init", b"#!".to_vec());
        let mut archive = Vec::new();
        files.write(&mut archive).expect("memory takes it");
        assert_eq!(archive.len() % 4, 0);
        let mut at = 0;
        let mut names = Vec::new();
        while at < archive.len() {
            let field = |n: usize| {
                let digits = &archive[at + 6 + 8 * n..at + 14 + 8 * n];
                usize::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("digits")
            };
            let (size, name) = (field(6), field(11));
            names.push(String::from_utf8_lossy(&archive[at + 110..at + 109 + name]).into_owned());
            at += (110 + name).next_multiple_of(4) + size.next_multiple_of(4);
        }
        assert_eq!(names, ["a", "a/b", "a/b/c", "init", "TRAILER!!!"]);
    }
}
