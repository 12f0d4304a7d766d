//! A table of the fragments that a device has, by their place in the area.
//!
//! What   one byte for each place where a fragment of the table's size can begin: 0, or the mark of its pool.
//!        A driver inserts the fragments that it gives to a device, and removes each one when the device
//!        names it. The handle is rebuilt from the place.
//! Who    one thread at a time. Dropping the table returns its fragments to their pools.
//! I1     the table owns its fragments. Only removal gives one up; removing a place that is not in it gives
//!        nothing.
//! Cost   one byte per fragment is written or read.

// UNSAFETY: inserted fragments become places, and handles again when removed; see I1.
#![expect(unsafe_code)]

use crate::buf::bulk::take_front;
use crate::buf::frag_run::FragRun;
use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::{PAGE_SIZE, PageIdx};
use crate::packet::marked_pools::MarkedPools;
use crate::packet::xdp_buff::XdpBuff;

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
#[derive(Debug)]
pub struct FragTable {
    len: usize,
    /// log2 of a fragment's bytes.
    shift: u32,
    /// Indexed by place.
    marks: Box<[u8]>,
    pools: MarkedPools,
}

// SAFETY: I1. Only the table owns its fragments, and the shared parts of their pools are `Sync`.
unsafe impl Send for FragTable {}
// SAFETY: nothing can be changed through a shared reference.
unsafe impl Sync for FragTable {}

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
        Self { len: 0, shift, marks: vec![0; (bytes >> shift) as usize].into(), pools: MarkedPools::new() }
    }

    /// Fragments in the table.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
        let apart = run.step() >> self.shift;
        let fits =
            |place: &usize| apart << self.shift == run.step() && place + (n - 1) * apart < self.marks.len();
        let Some(place) = self.place_of(first).filter(fits) else { return Err(run) };
        let Some(mark) = self.pools.mark_of(pool, &self.marks, self.len) else { return Err(run) };
        self.len += run.give_up();
        let shift = self.shift;
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

    /// Inserts packets from the front of a vector, at most `most`, like
    /// [`DeviceTable::insert_packets`](crate::DeviceTable::insert_packets); returns how many. Calls `takes`
    /// with the start of the fragment in the area, the packet's offset in it, and its length in bytes.
    ///
    /// Each packet's buffer must be a fragment of the table's size at a multiple of it, instead of a whole
    /// page.
    #[inline(always)]
    pub fn insert_packets(
        &mut self,
        packets: &mut Vec<XdpBuff>,
        most: usize,
        mut takes: impl FnMut(u64, usize, usize) -> bool,
    ) -> usize {
        let Some(pool) = packets.first().map(|first| first.buffer().pool) else { return 0 };
        let Some(mark) = self.pools.mark_of(pool, &self.marks, self.len) else { return 0 };
        let (fixed, mask) = self.frag_bits();
        let (shift, marks, len) = (self.shift, &mut *self.marks, &mut self.len);
        take_front(packets, most, |packet| {
            let (head, alone) = packet.head();
            if !alone || head.pool != pool || head.bits.bits() & mask != fixed {
                return false;
            }
            let at = head.bits.start_in_eights();
            let Some(entry) = marks.get_mut(place_at(at, shift)) else { return false };
            let (offset, bytes) = packet.span();
            if !takes(at, offset, bytes) {
                return false;
            }
            debug_assert!(*entry == 0, "I1: a fragment at {at} is here already");
            *entry = mark;
            *len += 1; // now: the closure may panic
            true
        })
    }

    /// Removes up to `n` fragments and appends each to the vector as a packet, like
    /// [`DeviceTable::remove_packets`](crate::DeviceTable::remove_packets); returns how many, and the sum of
    /// their bytes. A packet may end anywhere in its fragment.
    #[inline(always)]
    pub fn remove_packets(
        &mut self,
        n: usize,
        named: impl Fn(usize) -> Option<(u64, u32)>,
        into: &mut Vec<XdpBuff>,
    ) -> (usize, u64) {
        let (shift, marks) = (self.shift, &mut *self.marks);
        let Some((first, _)) = (n > 0).then(|| named(0)).flatten() else { return (0, 0) };
        let Some(&of) = marks.get(place_at(first, shift)) else { return (0, 0) };
        let Some(pool) = self.pools.of(of) else { return (0, 0) };
        let (size, mut taken, mut bytes) = (1u64 << shift, 0, 0);
        let room = into.spare_capacity_mut();
        let n = n.min(room.len());
        for place in &mut room[..n] {
            let Some((at, len)) = named(taken) else { break };
            let offset = at & (size - 1);
            let Some(mark) = marks.get_mut(place_at(at, shift)) else { break };
            if *mark != of || offset + u64::from(len.wrapping_sub(1)) >= size {
                break; // also if the packet is empty: its length wraps
            }
            *mark = 0;
            let frag = frag_at(pool, at - offset, shift); // it was in the table
            place.write(XdpBuff::in_frag(frag, offset as u32, len));
            taken += 1;
            bytes += u64::from(len);
        }
        self.len -= taken;
        // SAFETY: that many entries were written, within the capacity.
        unsafe { into.set_len(into.len() + taken) };
        (taken, bytes)
    }

    /// Removes the fragment at this offset of the area; returns its buffer, if it is in the table.
    #[inline(always)]
    pub fn remove(&mut self, at: u64) -> Option<PageBuf> {
        let mark = std::mem::take(self.marks.get_mut(place_at(at, self.shift))?);
        let pool = self.pools.of(mark)?;
        self.len -= 1;
        Some(frag_at(pool, at >> self.shift << self.shift, self.shift))
    }

    /// Returns all fragments to their pools; returns how many.
    pub fn clear(&mut self) -> usize {
        let len = self.len;
        for place in 0..self.marks.len() as u64 {
            if self.marks[place as usize] != 0 {
                drop(self.remove(place << self.shift));
            }
        }
        len
    }

    /// Leaks all fragments, because a device may still write to them: they stay out forever. Returns how
    /// many.
    pub fn forget(&mut self) -> usize {
        self.marks.fill(0);
        std::mem::take(&mut self.len)
    }

    /// Place of a fragment that has the table's size and begins at a multiple of it.
    #[inline(always)]
    fn place_of(&self, frag: &PageBuf) -> Option<usize> {
        let (fixed, mask) = self.frag_bits();
        (frag.bits.bits() & mask == fixed).then(|| place_at(frag.bits.start_in_eights(), self.shift))
    }

    /// The bits that are equal in all fragments of the table's size at multiples of it, and their mask: all
    /// except the page's number and the fragment's offset in its base page.
    #[inline(always)]
    fn frag_bits(&self) -> (u64, u64) {
        let size = 1usize << self.shift;
        let first = HandleBits::frag(PageIdx(0), 0, size).bits();
        let offsets = HandleBits::frag(PageIdx(0), PAGE_SIZE - size, size).bits() ^ first;
        (first, !(offsets | ((1 << 30) - 1)))
    }
}

/// Index of the entry for an offset in the area.
#[inline(always)]
fn place_at(at: u64, shift: u32) -> usize {
    usize::try_from(at >> shift).unwrap_or(usize::MAX)
}

/// The fragment of `1 << shift` bytes at an offset in the area; the caller owns it.
#[inline(always)]
fn frag_at(pool: PoolPtr, at: u64, shift: u32) -> PageBuf {
    PageBuf { pool, bits: HandleBits::frag_from(at, 1 << shift) }
}

impl Drop for FragTable {
    fn drop(&mut self) {
        self.clear();
    }
}
