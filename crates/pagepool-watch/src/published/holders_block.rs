//! Reads the holders of a pool's pages from its file.
//!
//! Torn   records are read twice, a piece of the table at a time. A record that differs was changed in
//!        between: it counts, but what it refers to is ignored. Rows of texts never change once their count
//!        includes them.

use std::mem::offset_of;

use pagepool::published::layout::BlockAt;
use pagepool::published::{
    HolderHead, HolderNames, HolderRecord, HolderTally, HolderThread, MAX_PAGES, OF_SITES, OF_STACKS,
    OF_TAGS, OF_THREADS, SITES, STACKS, Since, SiteRow, StackRow, TAGS, THREADS, TagRow, What,
};
use pagepool::{Error, HoldersView, MAX_ORDER, PageIdx, ThreadView};

use super::bytes::{Bytes, MOST_RECORDS, Reader};

const TOGETHER: u64 = 4096;

/// The time until which ages count.
#[derive(Clone, Copy)]
pub enum AsOf {
    /// Now, by the coarse clock that both processes share.
    Now(u64),
    /// So many milliseconds after the pool was made: at a dead process's last sign, or now, if the process
    /// has another clock.
    After(u64),
}

/// Reads the holders of a pool's pages, and the number of pages that have no holder: all their fragments have
/// returned, but the owner has not collected them. `None` if the pool does not record holders, or not in the
/// file.
pub fn holders(reader: Reader<'_>, at: BlockAt, as_of: AsOf) -> Result<Option<(HoldersView, u64)>, Error> {
    if at.count == 0 {
        return Ok(None);
    }
    let head = reader.block(at.offset, HolderHead::READ_BYTES)?;
    let records = block_at(&head, offset_of!(HolderHead, records));
    if records.count == 0 {
        return Ok(None);
    }
    let order = head.u64(offset_of!(HolderHead, order));
    let fits = records.bytes == size_of::<HolderRecord>() as u64
        && records.count <= MOST_RECORDS
        && order <= MAX_ORDER.into()
        && records.count << order <= MAX_PAGES.into()
        && reader.budget.take_records(records.count);
    if !fits {
        return Err(reader.damaged(records.count, "a possible number of page records"));
    }
    let names = HolderTexts::read(reader, &head)?;
    let last_ms = head.u64(offset_of!(HolderHead, last_ms));
    let made_ms = head.u64(offset_of!(HolderHead, made_ms));
    let mut tally = HolderTally::new(match as_of {
        AsOf::Now(now) => now,
        AsOf::After(after) => last_ms.max(made_ms.saturating_add(after)),
    });
    let mut uncollected = 0;
    for first in (0..records.count).step_by(TOGETHER as usize) {
        let piece = BlockAt {
            offset: records.offset.saturating_add(first * records.bytes),
            count: TOGETHER.min(records.count - first),
            ..records
        };
        for (page, since, what, is_held) in piece_of(reader, piece, first)? {
            match is_held {
                true => tally.add(PageIdx((page << order) as u32), since, what),
                false => uncollected += 1,
            }
        }
    }
    Ok(Some((tally.view(&names), uncollected)))
}

/// The pages of a piece of the table that are out as far as the owner knows, and whether each has a holder.
fn piece_of(reader: Reader<'_>, piece: BlockAt, first: u64) -> Result<Vec<(u64, Since, What, bool)>, Error> {
    let read = || reader.block(piece.offset, (piece.count * piece.bytes) as usize);
    let (before, after) = (read()?, read()?);
    let width = size_of::<HolderRecord>();
    let record = |at: u64| {
        let at_byte = at as usize * width;
        let words = |bytes: &Bytes| (bytes.u64(at_byte), bytes.u64(at_byte + 8));
        let is_held = HolderRecord::is_held(after.u64(at_byte + HolderRecord::FRAGS_AT));
        let (since, what) = words(&after);
        let what = if words(&before) == (since, what) { What::of_word(what) } else { What::default() };
        (since != 0).then(|| (first + at, Since(since), what, is_held))
    };
    Ok((0..piece.count).filter_map(record).collect())
}

/// Reads a block's place at an offset.
pub fn block_at(bytes: &Bytes, at: usize) -> BlockAt {
    BlockAt {
        offset: bytes.u64(at + offset_of!(BlockAt, offset)),
        bytes: bytes.u64(at + offset_of!(BlockAt, bytes)),
        count: bytes.u64(at + offset_of!(BlockAt, count)),
    }
}

/// The tables in use: bytes of a row, and all rows.
struct HolderTexts([(usize, Bytes); 4]);

impl HolderTexts {
    fn read(reader: Reader<'_>, head: &Bytes) -> Result<Self, Error> {
        let table = |which: usize, row_bytes: usize, most: usize| {
            let at = offset_of!(HolderHead, tables) + which * size_of::<BlockAt>();
            let table = block_at(head, at);
            let used = head.u64(offset_of!(HolderHead, used) + which * 8);
            let empty = table == BlockAt::default(); // on the heap, or not wanted
            let fits = table.bytes == row_bytes as u64 && table.count == most as u64 && used <= table.count;
            if !empty && !fits {
                return Err(reader.damaged(used, "text tables of the size of its version"));
            }
            let used = if empty { 0 } else { used as usize };
            Ok((row_bytes, reader.block(table.offset, used * row_bytes)?))
        };
        Ok(Self([
            table(OF_SITES, SiteRow::BYTES, SITES)?,
            table(OF_TAGS, TagRow::BYTES, TAGS)?,
            table(OF_THREADS, size_of::<HolderThread>(), THREADS)?,
            table(OF_STACKS, StackRow::BYTES, STACKS)?,
        ]))
    }

    /// The table that has the row with an id, the row's offset, and its length.
    fn row(&self, which: usize, id: u16) -> Option<(&Bytes, usize, usize)> {
        let (len, rows) = &self.0[which];
        let at = usize::from(id.checked_sub(1)?) * len;
        (at + len <= rows.len()).then_some((rows, at, *len))
    }

    fn line(&self, which: usize, id: u16) -> Option<String> {
        self.row(which, id).map(|(rows, at, len)| rows.line(at, len))
    }
}

impl HolderNames for HolderTexts {
    fn site(&self, id: u16) -> Option<String> {
        self.line(OF_SITES, id)
    }

    fn tag(&self, id: u16) -> Option<String> {
        self.line(OF_TAGS, id)
    }

    fn thread(&self, id: u16) -> Option<ThreadView> {
        let (rows, at, _) = self.row(OF_THREADS, id)?;
        Some(ThreadView::new(rows.u64(at) as u32, rows.line(at + 8, 16)))
    }

    fn stack(&self, id: u16) -> Option<String> {
        self.row(OF_STACKS, id).map(|(rows, at, len)| rows.text(at, len))
    }
}
