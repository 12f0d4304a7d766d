//! The layout of a published file. `docs/published-file.md` describes it.
//!
//! What   fields at offsets from the start of their block; numbers in the machine's byte order, aligned to
//!        their size.
//! Who    the publisher writes this layout. Observers read it, and check every value.

use std::mem::offset_of;

/// The first bytes of a file. Written last: without them the file is being made.
pub const MAGIC: [u8; 8] = *b"PAGEPOOL";

/// Raised when a reader of the previous version would misread a file.
pub const VERSION: u32 = 3;

/// Addresses are reserved for the whole file; its memory is allocated as needed.
pub const FILE_BYTES: usize = 16 << 20;

/// Bytes of texts.
pub const NAME_BYTES: usize = 64;
pub const PARAMS_BYTES: usize = 688;
pub const KIND_BYTES: usize = 16;

/// The kind of a pool's entry; no other entry has it.
pub const POOL_KIND: &str = "pool";

/// Kinds of entries whose parent is a pool.
pub const BELOW_POOLS: [&str; 3] = ["socket", "nic", "port"];

/// Limits of an entry that is no pool: counters, and bytes of their names.
pub const MOST_COUNTERS: usize = 256;
pub const MOST_NAMES: usize = 4096;

pub const ENTRY_ROWS: usize = 1024;
pub const THREAD_ROWS: usize = 1024;

/// The start of a file.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    pub header_bytes: u32,
    pub file_bytes: u64,
    pub pid: u64,
    /// Field 22 of `/proc/PID/stat`; 0 if `/proc` does not say.
    pub start_ticks: u64,
    /// The number of the pid namespace; 0 if `/proc` does not say.
    pub pid_namespace: u64,
    /// In nanoseconds since 1970.
    pub published_ns: u64,
    /// When the process last changed an entry or called `sign_of_life`, in nanoseconds since 1970.
    pub last_sign_ns: u64,
    /// Counts things that are not in the file; only rises.
    pub not_shown: u64,
    pub schema: TableAt,
    pub entries: TableAt,
    pub threads: TableAt,
    pub name: [u8; NAME_BYTES],
    pub library: [u8; 32],
    /// The number of the time namespace of its monotonic clocks; 0 if `/proc` does not say.
    pub time_namespace: u64,
}

/// Where a table is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TableAt {
    pub offset: u64,
    pub row_bytes: u32,
    /// Rows from here on were never used; only rises.
    pub rows: u32,
}

/// A part of a value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SchemaRow {
    pub name: [u8; 40],
    /// The block it is in: [`IN_POOL`], [`IN_LANE`], [`IN_DEFERRED`], [`IN_HOLDERS`].
    pub block: u32,
    /// In bytes from the start of the block.
    pub offset: u32,
    /// In bytes: 1, 4 or 8.
    pub width: u32,
    /// 1: added to the value; -1: subtracted.
    pub sign: i32,
}

/// Blocks of a pool.
pub const IN_POOL: u32 = 0;
pub const IN_LANE: u32 = 1;
pub const IN_DEFERRED: u32 = 2;
pub const IN_HOLDERS: u32 = 3;

/// A pool, an arena, or anything else that was published.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EntryRow {
    /// Odd while the row is valid; changes when it becomes valid or invalid.
    pub life: u64,
    pub id: u64,
    pub parent: u64,
    pub created_ns: u64,
    /// 0: it has not ended.
    pub ended_ns: u64,
    /// The memory id of a pool.
    pub mem_id: u64,
    /// A pool's page size.
    pub page_bytes: u64,
    /// Of a pool, the pool itself. Of another entry its counters, 8 bytes each, then their names, one a
    /// line.
    pub block: BlockAt,
    /// The lanes of a pool, adjacent.
    pub lanes: BlockAt,
    /// The counters of its deferred queue.
    pub deferred: BlockAt,
    /// The holders of its pages, if it records them.
    pub holders: BlockAt,
    pub kind: [u8; KIND_BYTES],
    pub name: [u8; NAME_BYTES],
    /// Lines of `key=value`.
    pub params: [u8; PARAMS_BYTES],
}

/// In bytes from the start of the file; `count` blocks are adjacent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BlockAt {
    pub offset: u64,
    pub bytes: u64,
    pub count: u64,
}

/// The thread with token `t` is in row `t` modulo the number of rows, until another thread takes the row.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ThreadRow {
    /// 0 while the row changes.
    pub token: u64,
    pub tid: u64,
    pub name: [u8; 16],
}

pub(crate) const SCHEMA_AT: usize = 4096;
pub const SCHEMA_ROWS: usize = 256;
pub(crate) const THREADS_AT: usize = SCHEMA_AT + SCHEMA_ROWS * size_of::<SchemaRow>();
pub(crate) const ENTRIES_AT: usize = THREADS_AT + THREAD_ROWS * size_of::<ThreadRow>();
/// Blocks are from here on.
pub(crate) const BLOCKS_AT: usize = (ENTRIES_AT + ENTRY_ROWS * size_of::<EntryRow>()).next_multiple_of(4096);

const _: () = assert!(size_of::<Header>() <= SCHEMA_AT && size_of::<EntryRow>() == 920);
const _: () = assert!(size_of::<SchemaRow>() == 56 && size_of::<ThreadRow>() == 32);
const _: () = assert!(offset_of!(Header, magic) == 0 && BLOCKS_AT < FILE_BYTES);

/// A text cut at a character's end, padded with zeroes.
pub(crate) fn text<const N: usize>(from: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let fits = (0..=from.len().min(N)).rev().find(|&len| from.is_char_boundary(len)).unwrap_or(0);
    bytes[..fits].copy_from_slice(&from.as_bytes()[..fits]);
    bytes
}

/// As many whole lines as fit, padded with zeroes.
pub(crate) fn whole_lines<const N: usize>(from: &str) -> [u8; N] {
    let fits = &from.as_bytes()[..from.len().min(N)];
    let end = fits.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut bytes = [0; N];
    bytes[..end].copy_from_slice(&fits[..end]);
    bytes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn texts_end_with_a_character_and_parameters_with_a_line() {
        assert_eq!(&text::<4>("abcü"), b"abc\0");
        assert_eq!(&whole_lines::<8>("a=1\nb=2\n"), b"a=1\nb=2\n");
        assert_eq!(&whole_lines::<8>("a=1\nb=23\n"), b"a=1\n\0\0\0\0");
        assert_eq!(whole_lines::<8>("too=long\n"), [0; 8]);
    }
}
