//! The pools whose buffers a table has, each named by a mark of one byte.
//!
//! What   0 marks an entry without a buffer; any other number is one more than the place of its pool in the
//!        list.
//! Life   a pool without buffers in the table may be freed already, and another pool may have its address: so
//!        an entry of the list means something only while a mark names it.

use crate::returns::pool_core::PoolPtr;

/// Most pools that can have buffers in one table.
const POOLS: usize = u8::MAX as usize;

/// The pools of one table.
#[derive(Debug)]
pub(crate) struct MarkedPools {
    /// The area of all buffers in the table; has no meaning while the table is empty.
    area: u64,
    pools: Vec<PoolPtr>,
}

impl MarkedPools {
    pub(crate) fn new() -> Self {
        Self { area: 0, pools: Vec::with_capacity(4) }
    }

    /// The pool of a mark.
    #[inline(always)]
    pub(crate) fn of(&self, mark: u8) -> Option<PoolPtr> {
        self.pools.get((mark as usize).wrapping_sub(1)).copied()
    }

    /// The mark for buffers of a pool; `marks` are those of the table, which has `len` buffers. `None` if it
    /// has buffers of another area, or of 255 other pools.
    #[inline(always)]
    pub(crate) fn mark_of(&mut self, pool: PoolPtr, marks: &[u8], len: usize) -> Option<u8> {
        match self.pools.first_mut() {
            Some(first) if *first == pool && self.area == pool.area_id => {
                *first = pool;
                Some(1)
            }
            _ => self.other_mark(pool, marks, len),
        }
    }

    #[cold]
    fn other_mark(&mut self, pool: PoolPtr, marks: &[u8], len: usize) -> Option<u8> {
        if len == 0 {
            self.area = pool.area_id;
            self.pools.clear();
        }
        if self.area != pool.area_id {
            return None;
        }
        let known = self.pools.iter().position(|&known| known == pool);
        let at = match known {
            None if self.pools.len() == POOLS => unused(marks)?,
            known => known.unwrap_or(self.pools.len()),
        };
        match self.pools.get_mut(at) {
            Some(place) => *place = pool,
            None => self.pools.push(pool),
        }
        Some(at as u8 + 1)
    }
}

/// The place of a pool that no mark names.
fn unused(marks: &[u8]) -> Option<usize> {
    let mut used = [false; POOLS + 1];
    marks.iter().for_each(|&mark| used[mark as usize] = true);
    used[1..].iter().position(|used| !used)
}
