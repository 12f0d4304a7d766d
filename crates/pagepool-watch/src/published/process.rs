//! What a published file says of its process.
//!
//! Rows   a row is valid while its `life` is odd. It is read until two reads are equal, and `life` is
//!        unchanged after reading what the row leads to.

use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pagepool::published::layout::{
    ENTRY_ROWS, EntryRow, FILE_BYTES, Header, KIND_BYTES, MAGIC, MOST_COUNTERS, MOST_NAMES, NAME_BYTES,
    PARAMS_BYTES, POOL_KIND, SCHEMA_ROWS, SchemaRow, THREAD_ROWS, TableAt, ThreadRow, VERSION,
};
use pagepool::published::run_folder::{self, ProcessIdentity, is_locked};
use pagepool::published::{coarse_ms, now_ns};
use pagepool::{Error, ThreadView};

use super::bytes::{Bytes, ReadBudget, Reader};
use super::holders_block::{AsOf, block_at, holders};
use super::model::{EntryView, Life, PoolView, ProcessView, param};
use super::pool_block::{PoolBlocks, PoolNumbers, Schema, numbers};

/// Number of reads of a row that keeps changing.
const TRIES: usize = 100;

/// Reads a file; `None` if its process has removed it since it was listed.
pub fn read(path: &Path) -> Result<Option<ProcessView>, Error> {
    let (file, found) = match run_folder::open(path) {
        Err(_) if !is_there(path) => return Ok(None),
        opened => opened?,
    };
    let budget = ReadBudget::default();
    let reader = Reader { source: &file, path, budget: &budget };
    let header = reader.bytes(0, size_of::<Header>())?;
    let its = identity(&header);
    let alive = is_locked(&file) && its.may_be_there(found.ino());
    let until_ns = match alive {
        true => its.has_other_clock().then(now_ns),
        false => Some(last_sign_ns(&header)),
    };
    let view = view(reader, &header, alive, until_ns);
    // A process that removed its file since it was opened is not dead.
    if !alive && file.metadata().is_ok_and(|found| found.nlink() == 0) {
        return Ok(None);
    }
    let pid_here = its.is_numbered_here().then_some(its.pid);
    view.map(|view| Some(ProcessView { pid_here, ..view }))
}

fn is_there(path: &Path) -> bool {
    !std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Views bytes as the published file of a dead process, valid or not. For fuzzers.
pub fn read_bytes(bytes: &[u8]) -> Result<ProcessView, Error> {
    let (path, budget) = (Path::new("bytes"), ReadBudget::default());
    let reader = Reader { source: &bytes, path, budget: &budget };
    let header = reader.bytes(0, size_of::<Header>())?;
    view(reader, &header, false, Some(last_sign_ns(&header)))
}

fn is_published(header: &Bytes) -> bool {
    header.u64(offset_of!(Header, magic)) == u64::from_ne_bytes(MAGIC)
}

fn identity(header: &Bytes) -> ProcessIdentity {
    ProcessIdentity {
        pid: pid(header),
        start_ticks: header.u64(offset_of!(Header, start_ticks)),
        pid_namespace: header.u64(offset_of!(Header, pid_namespace)),
        time_namespace: header.u64(offset_of!(Header, time_namespace)),
    }
}

fn pid(header: &Bytes) -> u32 {
    u32::try_from(header.u64(offset_of!(Header, pid))).unwrap_or(0)
}

fn time(ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(ns)
}

fn last_sign_ns(header: &Bytes) -> u64 {
    header.u64(offset_of!(Header, last_sign_ns))
}

/// `until_ns` is the time of day until which ages count; `None` means now, by the clock shared with the
/// process.
fn view(
    reader: Reader<'_>,
    header: &Bytes,
    alive: bool,
    until_ns: Option<u64>,
) -> Result<ProcessView, Error> {
    check_header(reader, header)?;
    let last_sign = time(last_sign_ns(header));
    let mut view = ProcessView {
        name: header.line(offset_of!(Header, name), NAME_BYTES),
        pid: pid(header),
        pid_here: None,
        started: time(header.u64(offset_of!(Header, published_ns))),
        version: header.line(offset_of!(Header, library), 32),
        life: if alive { Life::Alive } else { Life::Dead { last_sign } },
        not_shown: header.u64(offset_of!(Header, not_shown)),
        not_read: 0,
        pools: Vec::new(),
        entries: Vec::new(),
        file: reader.path.into(),
    };
    let mut file = PublishedFile::new(reader, header)?;
    file.until_ns = until_ns;
    for at in 0..file.entries.rows {
        match file.entry(at)? {
            SeenEntry::Pool(pool) => view.pools.push(*pool),
            SeenEntry::Entry(entry) => view.entries.push(entry),
            SeenEntry::None => {}
            SeenEntry::Damaged => view.not_read += 1,
        }
    }
    view.not_shown = view.not_shown.saturating_add(view.not_read);
    view.pools.sort_by_key(|pool| pool.id);
    view.entries.sort_by(|a, b| (&a.kind, a.id).cmp(&(&b.kind, b.id)));
    for pool in &mut view.pools {
        pool.ifindex = ifindex_below(&view.entries, pool.id);
    }
    Ok(view)
}

fn check_header(reader: Reader<'_>, header: &Bytes) -> Result<(), Error> {
    if !is_published(header) {
        return Err(reader.damaged(0, "PAGEPOOL at its start"));
    }
    let version = header.u32(offset_of!(Header, version));
    if version != VERSION {
        let must_be = format!("layout version {VERSION}: use the pagepool version of that process");
        return Err(reader.damaged(version.into(), &must_be));
    }
    let bytes = header.u32(offset_of!(Header, header_bytes));
    let file_bytes = header.u64(offset_of!(Header, file_bytes));
    if bytes as usize != size_of::<Header>() || file_bytes != FILE_BYTES as u64 {
        return Err(reader.damaged(file_bytes, "the header and file size of its version"));
    }
    Ok(())
}

fn ifindex_below(entries: &[EntryView], pool: u32) -> Option<u32> {
    let below = entries.iter().filter(|entry| entry.pool_id() == Some(pool.into()));
    below.into_iter().find_map(|entry| param(&entry.params, "ifindex")).and_then(|index| index.parse().ok())
}

enum SeenEntry {
    Pool(Box<PoolView>),
    Entry(EntryView),
    /// The row is not valid.
    None,
    /// It leads to something unreadable, or changes too often; other rows may be valid.
    Damaged,
}

struct PublishedFile<'a> {
    reader: Reader<'a>,
    schema: Schema,
    entries: TableAt,
    threads: TableAt,
    /// See [`view`].
    until_ns: Option<u64>,
}

impl<'a> PublishedFile<'a> {
    fn new(reader: Reader<'a>, header: &Bytes) -> Result<Self, Error> {
        let table = |at: usize, row_bytes: usize, most: usize| {
            let table = TableAt {
                offset: header.u64(at),
                row_bytes: header.u32(at + offset_of!(TableAt, row_bytes)),
                rows: header.u32(at + offset_of!(TableAt, rows)),
            };
            if table.row_bytes as usize != row_bytes || table.rows as usize > most {
                return Err(reader.damaged(table.rows.into(), "tables of the size of its version"));
            }
            Ok(table)
        };
        let schema = table(offset_of!(Header, schema), size_of::<SchemaRow>(), SCHEMA_ROWS)?;
        let rows = reader.bytes(schema.offset, schema.rows as usize * size_of::<SchemaRow>())?;
        Ok(Self {
            reader,
            schema: Schema::new(reader, &rows)?,
            entries: table(offset_of!(Header, entries), size_of::<EntryRow>(), ENTRY_ROWS)?,
            threads: table(offset_of!(Header, threads), size_of::<ThreadRow>(), THREAD_ROWS)?,
            until_ns: None,
        })
    }

    fn row(&self, table: TableAt, at: u32) -> Result<Bytes, Error> {
        let offset = u64::from(at) * u64::from(table.row_bytes);
        self.reader.bytes(table.offset.saturating_add(offset), table.row_bytes as usize)
    }

    /// What a row leads to; an error if there is no such row.
    fn entry(&self, at: u32) -> Result<SeenEntry, Error> {
        for _ in 0..TRIES {
            let row = self.row(self.entries, at)?;
            if life(&row) & 1 == 0 {
                return Ok(SeenEntry::None);
            }
            if self.row(self.entries, at)? == row {
                let seen = self.follow(&row);
                if life(&self.row(self.entries, at)?) == life(&row) {
                    return Ok(seen.unwrap_or(SeenEntry::Damaged));
                }
            }
            if !self.reader.budget.retry() {
                break;
            }
        }
        Ok(SeenEntry::Damaged) // it never stayed equal
    }

    fn follow(&self, row: &Bytes) -> Result<SeenEntry, Error> {
        let kind = row.line(offset_of!(EntryRow, kind), KIND_BYTES);
        match kind.as_str() {
            POOL_KIND => self.pool(row).map(|pool| SeenEntry::Pool(Box::new(pool))),
            _ => self.other(row, kind).map(SeenEntry::Entry),
        }
    }

    fn pool(&self, row: &Bytes) -> Result<PoolView, Error> {
        let blocks = PoolBlocks {
            pool: block_at(row, offset_of!(EntryRow, block)),
            lanes: block_at(row, offset_of!(EntryRow, lanes)),
            deferred: block_at(row, offset_of!(EntryRow, deferred)),
            holders: block_at(row, offset_of!(EntryRow, holders)),
        };
        let created_ns = row.u64(offset_of!(EntryRow, created_ns));
        let as_of = match self.until_ns {
            None => AsOf::Now(coarse_ms()),
            Some(until) => AsOf::After(until.saturating_sub(created_ns) / 1_000_000),
        };
        let PoolNumbers { stats, inflight, deferred, frag_waste, owner } =
            numbers(self.reader, &self.schema, blocks)?;
        let (holders, uncollected) = holders(self.reader, blocks.holders, as_of)?.unzip();
        let inflight = match uncollected {
            Some(uncollected) => inflight.with_uncollected(uncollected),
            None => inflight,
        };
        let ended = row.u64(offset_of!(EntryRow, ended_ns));
        Ok(PoolView {
            id: row.u64(offset_of!(EntryRow, id)) as u32,
            mem_id: row.u64(offset_of!(EntryRow, mem_id)) as u16,
            name: row.line(offset_of!(EntryRow, name), NAME_BYTES),
            area_id: row.u64(offset_of!(EntryRow, parent)),
            thread: self.thread(owner)?,
            ifindex: None,
            created: time(created_ns),
            detached: (ended != 0).then(|| time(ended)),
            page_bytes: row.u64(offset_of!(EntryRow, page_bytes)),
            stats,
            inflight,
            frag_waste,
            deferred,
            holders,
            params: params(row),
        })
    }

    /// The thread with a token, unless another one took its row.
    fn thread(&self, token: u64) -> Result<Option<ThreadView>, Error> {
        let Some(at) = token.checked_rem(self.threads.rows.into()) else { return Ok(None) };
        let row = self.row(self.threads, at as u32)?;
        let is_his = |row: &Bytes| token > 1 && row.u64(offset_of!(ThreadRow, token)) == token;
        if !is_his(&row) || self.row(self.threads, at as u32)? != row {
            return Ok(None);
        }
        let tid = row.u64(offset_of!(ThreadRow, tid)) as u32;
        Ok(Some(ThreadView::new(tid, row.line(offset_of!(ThreadRow, name), 16))))
    }

    fn other(&self, row: &Bytes, kind: String) -> Result<EntryView, Error> {
        let at = block_at(row, offset_of!(EntryRow, block));
        let names = at.bytes.checked_sub(at.count.saturating_mul(8));
        let Some(names) = names.filter(|&len| len <= MOST_NAMES as u64 && at.count <= MOST_COUNTERS as u64)
        else {
            return Err(self.reader.damaged(at.bytes, "entries of the length of their counters and names"));
        };
        let bytes = self.reader.block(at.offset, at.bytes as usize)?;
        let names = bytes.text(at.count as usize * 8, names as usize);
        let counters = names.split('\n').take(at.count as usize).enumerate();
        Ok(EntryView {
            kind,
            id: row.u64(offset_of!(EntryRow, id)),
            parent: row.u64(offset_of!(EntryRow, parent)),
            name: row.line(offset_of!(EntryRow, name), NAME_BYTES),
            params: params(row),
            counters: counters.map(|(at, name)| (name.to_owned(), bytes.u64(at * 8))).collect(),
        })
    }
}

fn life(row: &Bytes) -> u64 {
    row.u64(offset_of!(EntryRow, life))
}

fn params(row: &Bytes) -> Vec<(String, String)> {
    let text = row.text(offset_of!(EntryRow, params), PARAMS_BYTES);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::published::bytes::ReadAt;
    use pagepool::published::layout::{BlockAt, IN_LANE};

    /// A file whose pools claim to be at one of two places. The number at one of them falls at every read, as
    /// if the process changed the file forever.
    struct Falling {
        bytes: Vec<u8>,
        reads: Cell<u64>,
    }

    const STEADY: u64 = 8192;
    const FALLS: u64 = 8448;
    const ROWS_AT: usize = 12288;

    impl ReadAt for Falling {
        fn read_at(&self, at: u64, room: &mut [u8]) -> std::io::Result<()> {
            self.reads.set(self.reads.get() + 1);
            (&*self.bytes).read_at(at, room)?;
            if at == FALLS {
                room[..8].copy_from_slice(&(u64::MAX / 2 - self.reads.get()).to_ne_bytes());
            }
            Ok(())
        }
    }

    /// A row for each pool, and one number in the schema.
    fn falling(pools: usize) -> Falling {
        let mut bytes = vec![0; ROWS_AT + pools * size_of::<EntryRow>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Header, magic), &MAGIC);
        put(offset_of!(Header, version), &VERSION.to_ne_bytes());
        put(offset_of!(Header, header_bytes), &(size_of::<Header>() as u32).to_ne_bytes());
        put(offset_of!(Header, file_bytes), &(FILE_BYTES as u64).to_ne_bytes());
        let tables = [
            (offset_of!(Header, schema), 4096, size_of::<SchemaRow>(), 1),
            (offset_of!(Header, entries), ROWS_AT, size_of::<EntryRow>(), pools),
            (offset_of!(Header, threads), 0, size_of::<ThreadRow>(), 0),
        ];
        for (at, offset, row_bytes, rows) in tables {
            put(at, &(offset as u64).to_ne_bytes());
            put(at + offset_of!(TableAt, row_bytes), &(row_bytes as u32).to_ne_bytes());
            put(at + offset_of!(TableAt, rows), &(rows as u32).to_ne_bytes());
        }
        put(4096, b"stats.alloc_fast");
        put(4096 + offset_of!(SchemaRow, width), &8u32.to_ne_bytes());
        put(4096 + offset_of!(SchemaRow, sign), &1i32.to_ne_bytes());
        for pool in 0..pools {
            let row = ROWS_AT + pool * size_of::<EntryRow>();
            let at = if pool == pools / 2 { STEADY } else { FALLS };
            put(row + offset_of!(EntryRow, life), &1u64.to_ne_bytes());
            put(row + offset_of!(EntryRow, kind), POOL_KIND.as_bytes());
            for (field, value) in [
                (offset_of!(BlockAt, offset), at),
                (offset_of!(BlockAt, bytes), 8),
                (offset_of!(BlockAt, count), 1),
            ] {
                put(row + offset_of!(EntryRow, block) + field, &value.to_ne_bytes());
            }
        }
        Falling { bytes, reads: Cell::new(0) }
    }

    #[test]
    fn a_file_that_changes_without_end_is_read_for_a_while_only() {
        let (source, budget) = (falling(ENTRY_ROWS), ReadBudget::default());
        let reader = Reader { source: &source, path: Path::new("bytes"), budget: &budget };
        let header = reader.bytes(0, size_of::<Header>()).unwrap();
        let view = view(reader, &header, true, None).unwrap();
        assert_eq!((view.pools.len(), view.not_read, view.not_shown), (1, 1023, 1023));
        // For each pool its row and four blocks, all three times, and 2,000 times the blocks of some.
        let reads = source.reads.get();
        assert!(reads < 3 * 5 * 1024 + 4 * 2000 + 100, "{reads}");
    }

    /// Sums over lanes take time that no budget limits.
    #[test]
    fn a_schema_with_too_many_rows_for_one_name_is_refused() {
        let read = |count: u32| {
            let mut bytes = falling(0).bytes;
            let rows = offset_of!(Header, schema) + offset_of!(TableAt, rows);
            bytes[rows..rows + 4].copy_from_slice(&count.to_ne_bytes());
            for row in (4096..ROWS_AT).step_by(size_of::<SchemaRow>()).take(count as usize) {
                let row = &mut bytes[row..row + size_of::<SchemaRow>()];
                row.fill(0);
                row[..10].copy_from_slice(b"lane.taken");
                let block = offset_of!(SchemaRow, block);
                row[block..block + 4].copy_from_slice(&IN_LANE.to_ne_bytes());
            }
            read_bytes(&bytes).map(drop)
        };
        read(8).unwrap();
        for many in [9, 100] {
            let refused = read(many).unwrap_err().to_string();
            assert!(refused.contains("at most 8 rows for one name"), "{refused}");
        }
    }

    #[test]
    fn blocks_that_overlap_are_read_as_long_as_those_of_a_true_file() {
        let (source, budget) = (falling(1), ReadBudget::default());
        let reader = Reader { source: &source, path: Path::new("bytes"), budget: &budget };
        let whole = source.bytes.len();
        let read = (0..).take_while(|_| reader.block(0, whole).is_ok()).count();
        assert_eq!(read, 16 * FILE_BYTES / whole);
        assert!(reader.bytes(0, whole).is_ok(), "rows are read all the same");
    }
}
