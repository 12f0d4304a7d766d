//! The numbers of a pool, out of its memory.
//!
//! What   the schema says where each number is. A number is the sum of its rows; what is in lanes is
//!        computed as the lanes do it.
//! Torn   the memory is read three times. What only rises must not be lower in a later read: so the second
//!        read's value lies between what was true at the first and at the third. Else it is read again, as
//!        often as the budget of the look allows.

use std::collections::BTreeMap;
use std::mem::offset_of;

use crate::error::Error;
use crate::home::stats::{DeferredStats, Inflight, Stats};
use crate::observe::bytes::{Bytes, Reader};
use crate::sys::published_layout::{BlockAt, IN_DEFERRED, IN_HOLDERS, IN_LANE, IN_POOL, SchemaRow};

/// The most bytes of a block that are read; what lies behind is no number.
const MOST_BYTES: u64 = 16 << 10;
/// The most lanes that a pool may say it has.
const MOST_LANES: u64 = 64;
/// The most rows for one name in a block. Each costs time for each lane, at each look at each pool.
const MOST_PARTS: usize = 8;
/// Times that memory of a pool is read which changes in a way that it cannot.
const TRIES: usize = 200;

/// A row of the schema: a part of the number of its name.
struct Part {
    at: usize,
    width: usize,
    negative: bool,
}

impl Part {
    fn value(&self, block: &Bytes) -> u64 {
        let value = match self.width {
            8 => block.u64(self.at),
            4 => block.u32(self.at).into(),
            _ => block.u8(self.at).into(),
        };
        if self.negative { value.wrapping_neg() } else { value }
    }
}

/// Where the numbers of a pool are: in each of its kinds of blocks, by their names.
pub(crate) struct Schema([BTreeMap<String, Vec<Part>>; 4]);

impl Schema {
    /// Reads it, row by row.
    pub(crate) fn new(reader: Reader<'_>, rows: &Bytes) -> Result<Self, Error> {
        let field = |row: &Bytes, at| row.u32(at);
        let part = |row: &Bytes| Part {
            at: field(row, offset_of!(SchemaRow, offset)) as usize,
            width: field(row, offset_of!(SchemaRow, width)) as usize,
            negative: field(row, offset_of!(SchemaRow, sign)) as i32 == -1,
        };
        let mut schema = Self(Default::default());
        for row in rows.parts(size_of::<SchemaRow>()) {
            if let Some(parts) = schema.0.get_mut(field(&row, offset_of!(SchemaRow, block)) as usize) {
                let parts = parts.entry(row.line(0, 40)).or_default();
                if parts.len() == MOST_PARTS {
                    return Err(
                        reader.damaged(MOST_PARTS as u64 + 1, "at most 8 rows for one name in a block")
                    );
                }
                parts.push(part(&row));
            }
        }
        Ok(schema)
    }

    fn sum(&self, name: &str, block: u32, bytes: &Bytes) -> u64 {
        let parts = self.0[block as usize].get(name).into_iter().flatten();
        parts.fold(0, |sum, part| sum.wrapping_add(part.value(bytes)))
    }

    /// Bytes that a block must have.
    fn extent(&self, block: u32) -> u64 {
        let ends = self.0[block as usize].values().flatten().map(|part| part.at as u64 + part.width as u64);
        ends.max().unwrap_or(0)
    }
}

/// Where a pool is in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolBlocks {
    pub(crate) pool: BlockAt,
    pub(crate) lanes: BlockAt,
    pub(crate) deferred: BlockAt,
    pub(crate) holders: BlockAt,
}

/// The numbers of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolNumbers {
    pub(crate) stats: Stats,
    pub(crate) inflight: Inflight,
    pub(crate) deferred: DeferredStats,
    pub(crate) frag_waste: u64,
    /// The token of the thread that the pool is bound to.
    pub(crate) owner: u64,
}

/// What one look at a pool finds.
#[derive(Clone, Debug, Default)]
struct Look {
    numbers: PoolNumbers,
    /// Pages pushed into each lane, and taken out of all.
    pushed: Vec<u64>,
    taken: u64,
    ring: u64,
    /// Messages of fragments in lanes and ring, and pages in fragments as far as the owner knows.
    frag_messages: u64,
    in_frags: u64,
}

/// Reads a pool's numbers.
pub(crate) fn numbers(reader: Reader<'_>, schema: &Schema, blocks: PoolBlocks) -> Result<PoolNumbers, Error> {
    check(reader, schema, blocks)?;
    let look = || look(reader, schema, blocks);
    let [mut first, mut second, mut third] = [look()?, look()?, look()?];
    for _ in 0..TRIES {
        if second.follows(&first) && third.follows(&second) {
            return Ok(second.with_places(&first));
        }
        if !reader.budget.retry() {
            break;
        }
        (first, second, third) = (second, third, look()?);
    }
    Err(reader.damaged(blocks.pool.offset, "counters that only rise; one falls at this place"))
}

fn check(reader: Reader<'_>, schema: &Schema, blocks: PoolBlocks) -> Result<(), Error> {
    if blocks.lanes.count > MOST_LANES {
        return Err(reader.damaged(blocks.lanes.count, "at most 64 lanes a pool"));
    }
    let others = [(IN_DEFERRED, blocks.deferred), (IN_HOLDERS, blocks.holders)];
    for (block, at) in [(IN_POOL, blocks.pool), (IN_LANE, blocks.lanes)].into_iter().chain(others) {
        let needs = schema.extent(block);
        if needs > MOST_BYTES || at.count > 0 && (at.bytes < needs || at.bytes > MOST_BYTES) {
            return Err(reader.damaged(at.bytes, "blocks as long as its schema says"));
        }
    }
    Ok(())
}

fn look(reader: Reader<'_>, schema: &Schema, blocks: PoolBlocks) -> Result<Look, Error> {
    let read = |block: u32, at: BlockAt| {
        let bytes = if block == IN_LANE { at.bytes.saturating_mul(at.count) } else { schema.extent(block) };
        reader.block(at.offset, if at.count == 0 { 0 } else { bytes as usize })
    };
    let pool = read(IN_POOL, blocks.pool)?;
    let deferred = read(IN_DEFERRED, blocks.deferred)?;
    let holders = read(IN_HOLDERS, blocks.holders)?;
    let lanes = read(IN_LANE, blocks.lanes)?;
    let mut look = Look::default();
    for lane in lanes.parts(blocks.lanes.bytes as usize) {
        look.pushed.push(pages_pushed(schema, &lane));
        look.taken = look.taken.wrapping_add(schema.sum("lane.taken", IN_LANE, &lane));
        look.frag_messages = look.frag_messages.saturating_add(frags_in(schema, &lane));
    }
    let numbers = &mut look.numbers;
    numbers.stats.fill(|name| schema.sum(&format!("stats.{name}"), IN_POOL, &pool));
    numbers.deferred.fill(|name| schema.sum(&format!("deferred.{name}"), IN_DEFERRED, &deferred));
    numbers.frag_waste = schema.sum("frag_waste", IN_POOL, &pool);
    numbers.owner = schema.sum("owner", IN_POOL, &pool);
    // Read apart from the cache: while the owner moves pages between the two, they may count twice, or not.
    let stock = schema.sum("inflight.cache", IN_HOLDERS, &holders);
    numbers.inflight.cache = schema.sum("inflight.cache", IN_POOL, &pool).saturating_add(stock);
    numbers.inflight.frag = schema.sum("inflight.frag", IN_POOL, &pool);
    numbers.inflight.deferred = schema.sum("inflight.deferred", IN_DEFERRED, &deferred);
    look.ring = schema.sum("inflight.ring", IN_POOL, &pool);
    let in_ring = above_zero(schema.sum("ring_frags", IN_POOL, &pool));
    look.frag_messages = look.frag_messages.saturating_add(in_ring);
    look.in_frags = above_zero(schema.sum("in_frags", IN_POOL, &pool));
    Ok(look)
}

/// As `Lane::pages_pushed`.
fn pages_pushed(schema: &Schema, lane: &Bytes) -> u64 {
    let value = |name| schema.sum(name, IN_LANE, lane);
    let [lap_start, next, first, mask, phase] =
        ["lane.lap_start", "lane.next", "lane.first", "lane.mask", "lane.phase"].map(value);
    let in_lap = next.wrapping_sub(first) / 4;
    // The phase says which lap it is: of two stores that begin a new one, the first may have been made
    // alone.
    let size = mask.wrapping_add(1);
    let begins = in_lap == 0 && phase != u64::from(lap_start & size == 0);
    let messages = lap_start.wrapping_add(in_lap).wrapping_add(if begins { size } else { 0 });
    messages.saturating_sub(value("lane.frags"))
}

/// As `Lane::frags_in`.
fn frags_in(schema: &Schema, lane: &Bytes) -> u64 {
    let value = |name| schema.sum(name, IN_LANE, lane);
    above_zero(value("lane.frags").wrapping_sub(value("lane.at").wrapping_sub(value("lane.taken"))))
}

/// A difference of counts of which one may have been read before the other.
fn above_zero(difference: u64) -> u64 {
    if difference as i64 > 0 { difference } else { 0 }
}

impl Look {
    /// Whether nothing that only rises is lower than it was.
    fn follows(&self, before: &Self) -> bool {
        let risen = |now: u64, then: u64| now.wrapping_sub(then) as i64 >= 0;
        let stats = |look: &Self| look.numbers.stats.fields();
        let deferred = |look: &Self| look.numbers.deferred.fields();
        stats(self).iter().zip(stats(before)).all(|(now, then)| risen(now.1, then.1))
            && deferred(self).iter().zip(deferred(before)).all(|(now, then)| risen(now.1, then.1))
            && self.pushed.iter().zip(&before.pushed).all(|(&now, &then)| risen(now, then))
            && risen(self.taken, before.taken)
            && risen(self.numbers.frag_waste, before.numbers.frag_waste)
    }

    /// The numbers, with what is in lanes and ring; releases are of the look before, so that never more
    /// pages leave than joined.
    fn with_places(&self, before: &Self) -> PoolNumbers {
        let mut numbers = self.numbers;
        let pushed = self.pushed.iter().fold(0u64, |sum, lane| sum.wrapping_add(*lane));
        numbers.stats.recycle_ring = numbers.stats.recycle_ring.wrapping_add(pushed);
        numbers.stats.release = before.numbers.stats.release;
        let inflight = &mut numbers.inflight;
        inflight.total = numbers.stats.inflight().max(0);
        inflight.lanes = pushed.saturating_sub(self.taken);
        // The records of pages are not in the file: of the pages in fragments, as many as there are messages
        // may be complete.
        inflight.uncollected = self.frag_messages.min(self.in_frags);
        inflight.ring = above_zero(self.ring);
        let Inflight { cache, lanes, ring, frag, deferred, uncollected, .. } = *inflight;
        let inside =
            [cache, lanes, ring, frag, deferred, uncollected].into_iter().fold(0, u64::saturating_add);
        inflight.out = (inflight.total as u64).saturating_sub(inside);
        numbers
    }
}
