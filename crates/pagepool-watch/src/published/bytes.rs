//! Reads a published file, and checks every offset.
//!
//! Trust  none: what a file claims is compared with its contents. Numbers out of bounds, and files that
//!        shrink while they are read, are errors.
//! Bounds one look at a file has a [`ReadBudget`]. It ends soon, even if the process changes the file
//!        forever, or all rows lead to one block.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pagepool::Error;
use pagepool::published::layout::FILE_BYTES;
use pagepool::published::{HolderRecord, is_shown};

pub trait ReadAt {
    /// Fills `room` with the bytes from an offset on.
    fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()> {
        self.read_exact_at(room, at)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()> {
        let from =
            usize::try_from(at).ok().and_then(|at| self.get(at..)).and_then(|rest| rest.get(..room.len()));
        room.copy_from_slice(from.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Most records of pages that fit in a file.
pub const MOST_RECORDS: u64 = (FILE_BYTES / size_of::<HolderRecord>()) as u64;

/// How much more one look may read of a file.
pub struct ReadBudget {
    /// Bytes of blocks. Blocks of a valid file do not overlap, and each is read only a few times.
    bytes: Cell<u64>,
    /// Number of times that a row, or a pool's numbers, may be read again because they changed.
    retries: Cell<u32>,
    /// Records of pages. Pools do not share them, so if several rows of a file lead to one table, the later
    /// rows are damaged. Twice the most: a pool may end and another take its place while rows are read.
    records: Cell<u64>,
}

impl Default for ReadBudget {
    fn default() -> Self {
        Self {
            bytes: Cell::new(16 * FILE_BYTES as u64),
            retries: Cell::new(2000),
            records: Cell::new(2 * MOST_RECORDS),
        }
    }
}

impl ReadBudget {
    pub fn retry(&self) -> bool {
        let left = self.retries.get();
        self.retries.set(left.saturating_sub(1));
        left > 0
    }

    pub fn take_records(&self, count: u64) -> bool {
        take(&self.records, count)
    }
}

fn take(left: &Cell<u64>, count: u64) -> bool {
    let rest = left.get().checked_sub(count);
    rest.map(|rest| left.set(rest)).is_some()
}

#[derive(Clone, Copy)]
pub struct Reader<'a> {
    pub source: &'a dyn ReadAt,
    pub path: &'a Path,
    pub budget: &'a ReadBudget,
}

impl Reader<'_> {
    /// Reads `len` bytes at an offset; the error names both.
    pub fn bytes(&self, at: u64, len: usize) -> Result<Bytes, Error> {
        let mut bytes = vec![0; len];
        let read = self.source.read_at(at, &mut bytes);
        let remedy = || format!("{} has no {len} bytes at {at}: it is damaged", self.path.display());
        read.map_err(Error::of_call("read", remedy))?;
        Ok(Bytes(bytes))
    }

    /// Reads a block that a row leads to, within the budget.
    pub fn block(&self, at: u64, len: usize) -> Result<Bytes, Error> {
        match take(&self.budget.bytes, len as u64) {
            true => self.bytes(at, len),
            false => {
                Err(self.damaged(len as u64, "blocks that do not overlap (the read budget is exhausted)"))
            }
        }
    }

    pub fn damaged(&self, value: u64, must_be: &str) -> Error {
        let value = format!("{} with {value}", self.path.display());
        Error::parameter("file", value, format!("a published file with {must_be}"))
    }
}

/// Bytes of a file. Numbers beyond the end read as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The 8-byte number at an offset.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    pub fn u8(&self, at: usize) -> u8 {
        u8::from_ne_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let found = at.checked_add(N).and_then(|end| self.0.get(at..end));
        found.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// The text in `len` bytes at an offset, up to the first zero.
    pub fn text(&self, at: usize, len: usize) -> String {
        let field = self.0.get(at..).unwrap_or_default();
        let field = &field[..len.min(field.len())];
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        let text = String::from_utf8_lossy(&field[..end]);
        text.chars().map(|c| if is_shown(c) || c == '\n' { c } else { '?' }).collect()
    }

    /// The text of one line in `len` bytes at an offset, up to the first zero.
    pub fn line(&self, at: usize, len: usize) -> String {
        self.text(at, len).replace('\n', "?")
    }

    /// Pieces of `len` bytes, one after another.
    pub fn parts(&self, len: usize) -> impl Iterator<Item = Self> + '_ {
        self.0.chunks_exact(len.max(1)).map(|part| Self(part.to_vec()))
    }
}
