//! Where things lie in a published file: docs/published-file.md in constants.
//!
//! What   places of fields, counted in bytes from the start of what they are in. Numbers are in the byte
//!        order of the machine, at multiples of their size.
//! Who    the process that publishes writes by these; those that observe it read by them, and check every
//!        one.

use std::mem::offset_of;

/// The first bytes of a file; written last, so a file without them is being made.
pub(crate) const MAGIC: [u8; 8] = *b"PAGEPOOL";

/// Raised whenever a reader of the version before would misread a file.
pub(crate) const VERSION: u32 = 3;

/// Bytes of a file: addresses are reserved for all of it, memory is taken as it is needed.
pub(crate) const FILE_BYTES: usize = 16 << 20;

/// Bytes of texts.
pub(crate) const NAME_BYTES: usize = 64;
pub(crate) const PARAMS_BYTES: usize = 688;
pub(crate) const KIND_BYTES: usize = 16;

/// The kind of a pool's entry; no other entry has it.
pub(crate) const POOL_KIND: &str = "pool";

/// Kinds of entries whose parent is a pool.
pub(crate) const BELOW_POOLS: [&str; 3] = ["socket", "nic", "port"];

/// What an entry that is no pool has at most: counters, and bytes of their names.
pub(crate) const MOST_COUNTERS: usize = 256;
pub(crate) const MOST_NAMES: usize = 4096;

/// Rows of the tables.
pub(crate) const ENTRY_ROWS: usize = 1024;
pub(crate) const THREAD_ROWS: usize = 1024;

/// What a file begins with.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    pub(crate) file_bytes: u64,
    pub(crate) pid: u64,
    /// Field 22 of `/proc/PID/stat`; 0 where `/proc` does not say.
    pub(crate) start_ticks: u64,
    /// The number of the pid namespace; 0 where `/proc` does not say.
    pub(crate) pid_namespace: u64,
    /// When it was published, in nanoseconds since 1970.
    pub(crate) published_ns: u64,
    /// Written at each change of the entries.
    pub(crate) last_sign_ns: u64,
    /// Things that are not in the file; only rises.
    pub(crate) not_shown: u64,
    pub(crate) schema: TableAt,
    pub(crate) entries: TableAt,
    pub(crate) threads: TableAt,
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) library: [u8; 32],
    /// The number of the time namespace, of which its monotonic clocks are; 0 where `/proc` does not say.
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

/// A row of the schema: one part of a value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SchemaRow {
    pub(crate) name: [u8; 40],
    /// Which block it is in: [`IN_POOL`], [`IN_LANE`], [`IN_DEFERRED`], [`IN_HOLDERS`].
    pub(crate) block: u32,
    /// From the start of the block.
    pub(crate) offset: u32,
    /// Bytes: 1, 4 or 8.
    pub(crate) width: u32,
    /// 1: added to the value; -1: subtracted.
    pub(crate) sign: i32,
}

/// Blocks of a pool, as its row says where they are.
pub(crate) const IN_POOL: u32 = 0;
pub(crate) const IN_LANE: u32 = 1;
pub(crate) const IN_DEFERRED: u32 = 2;
pub(crate) const IN_HOLDERS: u32 = 3;

/// A row of the entry table: a pool, an arena, whatever was published.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EntryRow {
    /// Odd: the row is valid. It changes whenever the row is made valid, or is not any more.
    pub(crate) life: u64,
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) created_ns: u64,
    /// 0: it has not ended.
    pub(crate) ended_ns: u64,
    /// The memory id of a pool.
    pub(crate) mem_id: u64,
    /// Bytes of a page of a pool.
    pub(crate) page_bytes: u64,
    /// A pool itself; of any other entry its counters, eight bytes each, and then their names, a line
    /// each.
    pub(crate) block: BlockAt,
    /// The lanes of a pool, one after another.
    pub(crate) lanes: BlockAt,
    /// The counters of its deferred queue.
    pub(crate) deferred: BlockAt,
    /// Who holds its pages, if it records that.
    pub(crate) holders: BlockAt,
    pub(crate) kind: [u8; KIND_BYTES],
    pub(crate) name: [u8; NAME_BYTES],
    /// Lines of `key=value`.
    pub(crate) params: [u8; PARAMS_BYTES],
}

/// Where a block is, in bytes from the start of the file; `count` of them, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct BlockAt {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

/// A row of the thread table: the thread with token `t` is in row `t` modulo the rows, unless another one
/// took the row after it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ThreadRow {
    /// 0 while the row changes.
    pub(crate) token: u64,
    pub(crate) tid: u64,
    pub(crate) name: [u8; 16],
}

/// Where the tables are.
pub(crate) const SCHEMA_AT: usize = 4096;
pub(crate) const SCHEMA_ROWS: usize = 256;
pub(crate) const THREADS_AT: usize = SCHEMA_AT + SCHEMA_ROWS * size_of::<SchemaRow>();
pub(crate) const ENTRIES_AT: usize = THREADS_AT + THREAD_ROWS * size_of::<ThreadRow>();
/// Blocks follow from here on.
pub(crate) const BLOCKS_AT: usize = (ENTRIES_AT + ENTRY_ROWS * size_of::<EntryRow>()).next_multiple_of(4096);

const _: () = assert!(size_of::<Header>() <= SCHEMA_AT && size_of::<EntryRow>() == 920);
const _: () = assert!(size_of::<SchemaRow>() == 56 && size_of::<ThreadRow>() == 32);
const _: () = assert!(offset_of!(Header, magic) == 0 && BLOCKS_AT < FILE_BYTES);

/// A text in its place: cut at the end of a character, with zeroes behind.
pub(crate) fn text<const N: usize>(from: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let fits = (0..=from.len().min(N)).rev().find(|&len| from.is_char_boundary(len)).unwrap_or(0);
    bytes[..fits].copy_from_slice(&from.as_bytes()[..fits]);
    bytes
}

/// Lines in their place: as many whole ones as fit, with zeroes behind.
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
