//! The layout of a published file. `docs/published-file.md` describes it.
//!
//! What   fields at offsets from the start of their block; numbers in the machine's byte order, aligned to
//!        their size.
//! Who    the publisher writes this layout. Observers read it, and check every value.

use std::mem::offset_of;

/// The first bytes of a file. Written last: without them the file is being made.
pub(crate) const MAGIC: [u8; 8] = *b"PAGEPOOL";

/// Raised when a reader of the previous version would misread a file.
pub(crate) const VERSION: u32 = 3;

/// Addresses are reserved for the whole file; its memory is allocated as needed.
pub(crate) const FILE_BYTES: usize = 16 << 20;

/// Bytes of texts.
pub(crate) const NAME_BYTES: usize = 64;
pub(crate) const PARAMS_BYTES: usize = 688;
pub(crate) const KIND_BYTES: usize = 16;

/// The kind of a pool's entry; no other entry has it.
pub(crate) const POOL_KIND: &str = "pool";

/// Kinds of entries whose parent is a pool.
pub(crate) const BELOW_POOLS: [&str; 3] = ["socket", "nic", "port"];

/// Limits of an entry that is no pool: counters, and bytes of their names.
pub(crate) const MOST_COUNTERS: usize = 256;
pub(crate) const MOST_NAMES: usize = 4096;

pub(crate) const ENTRY_ROWS: usize = 1024;
pub(crate) const THREAD_ROWS: usize = 1024;

/// The start of a file.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    pub(crate) file_bytes: u64,
    pub(crate) pid: u64,
    /// Field 22 of `/proc/PID/stat`; 0 if `/proc` does not say.
    pub(crate) start_ticks: u64,
    /// The number of the pid namespace; 0 if `/proc` does not say.
    pub(crate) pid_namespace: u64,
    /// In nanoseconds since 1970.
    pub(crate) published_ns: u64,
    /// When the process last changed an entry or called `sign_of_life`, in nanoseconds since 1970.
    pub(crate) last_sign_ns: u64,
    /// Counts things that are not in the file; only rises.
    pub(crate) not_shown: u64,
    pub(crate) schema: TableAt,
    pub(crate) entries: TableAt,
    pub(crate) threads: TableAt,
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) library: [u8; 32],
    /// The number of the time namespace of its monotonic clocks; 0 if `/proc` does not say.
    pub(crate) time_namespace: u64,
}

/// Where a table is.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct TableAt {
    pub(crate) offset: u64,
    pub(crate) row_bytes: u32,
    /// Rows from here on were never used; only rises.
    pub(crate) rows: u32,
}

/// A part of a value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SchemaRow {
    pub(crate) name: [u8; 40],
    /// The block it is in: [`IN_POOL`], [`IN_LANE`], [`IN_DEFERRED`], [`IN_HOLDERS`].
    pub(crate) block: u32,
    /// In bytes from the start of the block.
    pub(crate) offset: u32,
    /// In bytes: 1, 4 or 8.
    pub(crate) width: u32,
    /// 1: added to the value; -1: subtracted.
    pub(crate) sign: i32,
}

/// Blocks of a pool.
pub(crate) const IN_POOL: u32 = 0;
pub(crate) const IN_LANE: u32 = 1;
pub(crate) const IN_DEFERRED: u32 = 2;
pub(crate) const IN_HOLDERS: u32 = 3;

/// A pool, an arena, or anything else that was published.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EntryRow {
    /// Odd while the row is valid; changes when it becomes valid or invalid.
    pub(crate) life: u64,
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) created_ns: u64,
    /// 0: it has not ended.
    pub(crate) ended_ns: u64,
    /// The memory id of a pool.
    pub(crate) mem_id: u64,
    /// A pool's page size.
    pub(crate) page_bytes: u64,
    /// Of a pool, the pool itself. Of another entry its counters, 8 bytes each, then their names, one a
    /// line.
    pub(crate) block: BlockAt,
    /// The lanes of a pool, adjacent.
    pub(crate) lanes: BlockAt,
    /// The counters of its deferred queue.
    pub(crate) deferred: BlockAt,
    /// The holders of its pages, if it records them.
    pub(crate) holders: BlockAt,
    pub(crate) kind: [u8; KIND_BYTES],
    pub(crate) name: [u8; NAME_BYTES],
    /// Lines of `key=value`.
    pub(crate) params: [u8; PARAMS_BYTES],
}

/// In bytes from the start of the file; `count` blocks are adjacent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct BlockAt {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

/// The thread with token `t` is in row `t` modulo the number of rows, until another thread takes the row.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ThreadRow {
    /// 0 while the row changes.
    pub(crate) token: u64,
    pub(crate) tid: u64,
    pub(crate) name: [u8; 16],
}

pub(crate) const SCHEMA_AT: usize = 4096;
pub(crate) const SCHEMA_ROWS: usize = 256;
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
