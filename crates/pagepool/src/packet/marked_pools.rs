//! The pools whose buffers a table has, each with a mark of one byte.
//!
//! What   mark 0: an entry without a buffer. Others: index of the pool in the list, plus 1.
//! Life   a pool without buffers in the table may be freed, and another pool have its address: an entry of
//!        the list is valid only while a mark names it.

use crate::core::pool_core::PoolPtr;

/// Most pools that can have buffers in one table.
const POOLS: usize = u8::MAX as usize;

/// The pools of one table.
#[derive(Debug)]
pub(crate) struct MarkedPools {
    /// The area of all buffers in the table; meaningless while it is empty.
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

    /// The mark for buffers of a pool, in a table with these marks and `len` buffers. `None` if it has
    /// buffers of another area, or of 255 other pools.
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

/// Index of a pool that no mark names.
fn unused(marks: &[u8]) -> Option<usize> {
    let mut used = [false; POOLS + 1];
    marks.iter().for_each(|&mark| used[mark as usize] = true);
    used[1..].iter().position(|used| !used)
}
