//! Reads a pool's numbers from its memory.
//!
//! What   the schema has the place of each number. A number is the sum of its rows. Pages in lanes are
//!        computed as lanes do it.
//! Torn   the memory is read three times. Values that only rise must not fall between reads. The second
//!        read's value then lies between the true values at the first and the third. Otherwise it is read
//!        again, within the look's budget.

use std::collections::BTreeMap;
use std::mem::offset_of;

use pagepool::published::layout::{BlockAt, IN_DEFERRED, IN_HOLDERS, IN_LANE, IN_POOL, SchemaRow};
use pagepool::{DeferredStats, Error, Inflight, Stats};

use super::bytes::{Bytes, Reader};

/// Most bytes to read of a block; behind them are no numbers.
const MOST_BYTES: u64 = 16 << 10;
/// Most lanes that a pool may claim.
const MOST_LANES: u64 = 64;
/// Most rows per name in a block. Each costs time per lane, at each look at each pool.
const MOST_PARTS: usize = 8;
/// Number of reads of a pool's memory that changes as it cannot.
const TRIES: usize = 200;

/// A row of the schema: one summand of its name's number.
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

/// Places of a pool's numbers: for each kind of block, by name.
pub struct Schema([BTreeMap<String, Vec<Part>>; 4]);

impl Schema {
    pub fn new(reader: Reader<'_>, rows: &Bytes) -> Result<Self, Error> {
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

    fn extent(&self, block: u32) -> u64 {
        let ends = self.0[block as usize].values().flatten().map(|part| part.at as u64 + part.width as u64);
        ends.max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PoolBlocks {
    pub pool: BlockAt,
    pub lanes: BlockAt,
    pub deferred: BlockAt,
    pub holders: BlockAt,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct PoolNumbers {
    pub stats: Stats,
    pub inflight: Inflight,
    pub deferred: DeferredStats,
    pub frag_waste: u64,
    /// Token of the thread to which the pool is bound.
    pub owner: u64,
}

#[derive(Clone, Debug, Default)]
struct Look {
    numbers: PoolNumbers,
    /// Pages pushed into each lane, and taken out of all lanes.
    pushed: Vec<u64>,
    taken: u64,
    ring: u64,
    /// Messages of fragments in lanes and ring, and the owner's count of pages in fragments.
    frag_messages: u64,
    in_frags: u64,
}

pub fn numbers(reader: Reader<'_>, schema: &Schema, blocks: PoolBlocks) -> Result<PoolNumbers, Error> {
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
    Err(reader.damaged(blocks.pool.offset, "counters that never decrease; one decreases at this offset"))
}

fn check(reader: Reader<'_>, schema: &Schema, blocks: PoolBlocks) -> Result<(), Error> {
    if blocks.lanes.count > MOST_LANES {
        return Err(reader.damaged(blocks.lanes.count, "at most 64 lanes per pool"));
    }
    let others = [(IN_DEFERRED, blocks.deferred), (IN_HOLDERS, blocks.holders)];
    for (block, at) in [(IN_POOL, blocks.pool), (IN_LANE, blocks.lanes)].into_iter().chain(others) {
        let needs = schema.extent(block);
        if needs > MOST_BYTES || at.count > 0 && (at.bytes < needs || at.bytes > MOST_BYTES) {
            return Err(reader.damaged(at.bytes, "blocks of the length in its schema"));
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
    // Read separately from the cache: a page that the owner moves between both may count twice or not at all.
    let in_holders = schema.sum("inflight.cache", IN_HOLDERS, &holders);
    numbers.inflight.cache = schema.sum("inflight.cache", IN_POOL, &pool).saturating_add(in_holders);
    numbers.inflight.frag = schema.sum("inflight.frag", IN_POOL, &pool);
    numbers.inflight.deferred = schema.sum("inflight.deferred", IN_DEFERRED, &deferred);
    look.ring = schema.sum("inflight.ring", IN_POOL, &pool);
    let in_ring = above_zero(schema.sum("ring_frags", IN_POOL, &pool));
    look.frag_messages = look.frag_messages.saturating_add(in_ring);
    look.in_frags = above_zero(schema.sum("in_frags", IN_POOL, &pool));
    Ok(look)
}

/// Like `Lane::pages_pushed`.
fn pages_pushed(schema: &Schema, lane: &Bytes) -> u64 {
    let value = |name| schema.sum(name, IN_LANE, lane);
    let [lap_start, next, first, mask, phase] =
        ["lane.lap_start", "lane.next", "lane.first", "lane.mask", "lane.phase"].map(value);
    let in_lap = next.wrapping_sub(first) / 4;
    // The phase tells the lap: of the two stores that begin a new lap, maybe only the first was made.
    let size = mask.wrapping_add(1);
    let begins = in_lap == 0 && phase != u64::from(lap_start & size == 0);
    let messages = lap_start.wrapping_add(in_lap).wrapping_add(if begins { size } else { 0 });
    messages.saturating_sub(value("lane.frags"))
}

/// Like `Lane::frags_in`.
fn frags_in(schema: &Schema, lane: &Bytes) -> u64 {
    let value = |name| schema.sum(name, IN_LANE, lane);
    above_zero(value("lane.frags").wrapping_sub(value("lane.at").wrapping_sub(value("lane.taken"))))
}

/// A difference of two counts, which were not read at once; 0 if negative.
fn above_zero(difference: u64) -> u64 {
    if difference as i64 > 0 { difference } else { 0 }
}

impl Look {
    /// Whether no value that only rises has fallen.
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

    /// The numbers, with pages in lanes and ring. Releases are from the look before, so that never more pages
    /// leave than joined.
    fn with_places(&self, before: &Self) -> PoolNumbers {
        let mut numbers = self.numbers;
        let pushed = self.pushed.iter().fold(0u64, |sum, lane| sum.wrapping_add(*lane));
        numbers.stats.recycle_ring = numbers.stats.recycle_ring.wrapping_add(pushed);
        numbers.stats.release = before.numbers.stats.release;
        let inflight = &mut numbers.inflight;
        inflight.total = numbers.stats.inflight().max(0);
        inflight.lanes = pushed.saturating_sub(self.taken);
        // The file lacks the records of pages: at most as many pages in fragments are complete as there are
        // messages.
        inflight.uncollected = self.frag_messages.min(self.in_frags);
        inflight.ring = above_zero(self.ring);
        let Inflight { cache, lanes, ring, frag, deferred, uncollected, .. } = *inflight;
        let inside =
            [cache, lanes, ring, frag, deferred, uncollected].into_iter().fold(0, u64::saturating_add);
        inflight.out = (inflight.total as u64).saturating_sub(inside);
        numbers
    }
}
