//! A table of the fragments of one size that a device has, by their place in the area: see [`MarkTable`].

use crate::buf::frag_run::FragRun;
use crate::buf::page_buf::PageBuf;
use crate::mem::page::PAGE_SIZE;
use crate::packet::mark_table::MarkTable;

/// Owns the fragments of one size that a device has, and finds them by place. Takes one byte per place. For
/// drivers whose chunks are parts of pages; whole pages go into a [`DeviceTable`](crate::DeviceTable).
///
/// ```
/// # use pagepool::{Arena, ArenaParams, FragTable, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { order: 5, ..Default::default() }, arena)?.bind();
/// let (mut table, mut ring) = (FragTable::new(1 << 20, 2048), Vec::new());
/// table.insert(pool.alloc_frag_run(2048, 4).unwrap(), |at| ring.push(at)).expect("they are of its size");
/// assert_eq!((table.len(), ring.len(), ring[1] - ring[0]), (4, 4, 2048));
/// let frag = table.remove(ring[2]).expect("it is here");
/// assert_eq!(frag.offset() as u64, ring[2] % (128 << 10));
/// assert!(table.remove(ring[2]).is_none(), "not any more");
/// drop((table, frag));
/// assert_eq!(pool.inflight().out, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
pub type FragTable = MarkTable<true>;

impl FragTable {
    /// Creates an empty table for an area of `bytes` bytes and fragments of `size` bytes. Allocates one byte
    /// per place.
    ///
    /// # Panics
    /// If `size` is not a power of two from 64 to 4096.
    pub fn new(bytes: u64, size: usize) -> Self {
        let fits = size.is_power_of_two() && (64..=PAGE_SIZE).contains(&size);
        assert!(fits, "FragTable: a size of {size} bytes; use a power of two from 64 to 4096");
        let shift = size.trailing_zeros();
        Self::of(shift, (bytes >> shift) as usize)
    }

    /// Inserts all fragments of a run, and calls `each` with the start of each in the area. `Err(run)` if its
    /// fragments have another size, do not begin at multiples of it, or are beyond the table, or if the table
    /// has fragments of another area or of 255 other pools. May allocate if the pool is new to the table.
    ///
    /// # Panics
    /// If `each` panics. All fragments are in the table then.
    #[inline]
    pub fn insert(&mut self, run: FragRun, mut each: impl FnMut(u64)) -> Result<(), FragRun> {
        let Some(first) = run.first() else { return Ok(()) };
        let (pool, n) = (first.pool, run.len());
        // If the pool's fragments begin further apart, there are places between them.
        let (places, shift) = (self.places, self.places.shift());
        let apart = run.step() >> shift;
        let (place, _) = places.of(first.bits);
        let fits = places.has(first.bits) && apart << shift == run.step();
        if !fits || place + (n - 1) * apart >= self.marks.len() {
            return Err(run);
        }
        let Some(mark) = self.mark_of(pool) else { return Err(run) };
        self.len += run.give_up();
        let marks = &mut self.marks[place..=place + (n - 1) * apart];
        debug_assert!(marks.iter().step_by(apart).all(|&mark| mark == 0), "I1: one of them is here already");
        // One by one only if there are places between them.
        if apart == 1 {
            marks.fill(mark)
        } else {
            marks.iter_mut().step_by(apart).for_each(|at| *at = mark)
        }
        (0..n).for_each(|at| each(((place + at * apart) as u64) << shift));
        Ok(())
    }

    /// Removes the fragment at this offset of the area; returns its buffer, if it is in the table.
    #[inline(always)]
    pub fn remove(&mut self, at: u64) -> Option<PageBuf> {
        let (places, shift) = (self.places, self.places.shift());
        let (place, start) = (places.at(at), at >> shift << shift);
        Some(places.buffer(self.take(place)?, place, start))
    }
}
