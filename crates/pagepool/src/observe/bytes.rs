//! A published file, read with every place checked.
//!
//! Trust  nothing: what a file says of itself is compared with what is there. Numbers out of bounds, and
//!        files that get shorter while they are read, are errors.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::Error;

/// Something that bytes are read of.
pub(crate) trait ReadAt {
    /// As many bytes from a place on as there is room for.
    fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()> {
        self.read_exact_at(room, at)
    }
}

#[cfg(any(test, feature = "testing"))]
impl ReadAt for &[u8] {
    fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()> {
        let from =
            usize::try_from(at).ok().and_then(|at| self.get(at..)).and_then(|rest| rest.get(..room.len()));
        room.copy_from_slice(from.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A file, and its name for errors.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a dyn ReadAt,
    pub(crate) path: &'a Path,
}

impl Reader<'_> {
    /// So many bytes from a place on, or an error that says which.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Result<Bytes, Error> {
        let mut bytes = vec![0; len];
        let read = self.source.read_at(at, &mut bytes);
        let remedy = || format!("{} has no {len} bytes at {at}: it is damaged", self.path.display());
        read.map_err(Error::of_call("read", remedy))?;
        Ok(Bytes(bytes))
    }

    /// An error: the file is not what it should be.
    pub(crate) fn damaged(&self, value: u64, must_be: &str) -> Error {
        let value = format!("{} with {value}", self.path.display());
        Error::parameter("file", value, format!("a published file with {must_be}"))
    }
}

/// Bytes of a file, of which no number is beyond the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(Vec<u8>);

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The number at a place; 0 beyond the end.
    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    /// The same, of four bytes.
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    /// The same, of one.
    pub(crate) fn u8(&self, at: usize) -> u8 {
        u8::from_ne_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let found = at.checked_add(N).and_then(|end| self.0.get(at..end));
        found.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// The text in `len` bytes from a place on, up to the first zero.
    pub(crate) fn text(&self, at: usize, len: usize) -> String {
        let field = self.0.get(at..).unwrap_or_default();
        let field = &field[..len.min(field.len())];
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        let text = String::from_utf8_lossy(&field[..end]);
        text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
    }

    /// The same, of one line.
    pub(crate) fn line(&self, at: usize, len: usize) -> String {
        self.text(at, len).replace('\n', "?")
    }

    /// So many bytes, each `len` long, one after another.
    pub(crate) fn parts(&self, len: usize) -> impl Iterator<Item = Self> + '_ {
        self.0.chunks_exact(len.max(1)).map(|part| Self(part.to_vec()))
    }
}
