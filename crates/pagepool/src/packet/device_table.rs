//! The table of the whole pages that a device has, by page number.
//!
//! What   a byte for each page of an area: 0, or the number of the page's pool in the list of pools. A driver
//!        inserts the pages that it gives to a device, and removes each one when the device names it.
//! Who    one thread at a time. Dropping the table returns its pages to their pools.
//! I1     the table owns its pages. Only removing a page gives it up, and a number that is not in the table
//!        gives nothing.
//! Cost   inserting and removing a page: one byte written, one read. 64 pages share a cache line of the
//!        table.

// UNSAFETY: pages that are inserted become numbers, and handles again when removed; see I1.
#![expect(unsafe_code)]

use crate::buf::batch::Batch;
use crate::buf::bulk::taken;
use crate::buf::page_buf::PageBuf;
use crate::mem::page::{PAGE_SHIFT, PAGE_SIZE, PageIdx};
use crate::packet::xdp_buff::{XdpBuff, whole_end};
use crate::returns::pool_core::PoolPtr;

/// Most pools that can have pages in one table.
const POOLS: usize = u8::MAX as usize;

/// Owns the whole pages that a device has, and finds them by page number. One byte a page.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, DeviceTable, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let (mut table, mut ring) = (DeviceTable::new(256), Vec::new());
/// table.insert(pool.alloc_batch(4), |page, _| ring.push(page)).expect("it has pages of no other area");
/// assert_eq!((table.len(), ring.len(), pool.inflight().out), (4, 4, 4));
/// let buffer = table.remove(ring[2]).expect("it is here");
/// assert_eq!(buffer.page(), ring[2]);
/// assert!(table.remove(ring[2]).is_none(), "not any more");
/// drop((table, buffer));
/// assert_eq!(pool.inflight().out, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceTable {
    /// The area of all pages in the table; has no meaning while the table is empty.
    area: u64,
    len: usize,
    /// By page: 0, or one more than the index of its pool in `pools`.
    marks: Box<[u8]>,
    /// A pool without pages in the table may be freed already, and another pool may have its address.
    pools: Vec<PoolPtr>,
}

// SAFETY: I1. The pages are owned here alone; what is shared of their pools is `Sync`.
unsafe impl Send for DeviceTable {}
// SAFETY: through a shared reference nothing can be changed.
unsafe impl Sync for DeviceTable {}

impl DeviceTable {
    /// An empty table for an area of `pages` pages. Allocates one byte a page.
    pub fn new(pages: usize) -> Self {
        Self { area: 0, len: 0, marks: vec![0; pages].into(), pools: Vec::with_capacity(4) }
    }

    /// Pages in the table.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts all pages of a batch, and calls `each` with the number of each page and the offset of the
    /// packet in it. Gives the batch back if the table has pages of another area, or of 255 other pools. May
    /// allocate if the pool is new to the table.
    ///
    /// # Panics
    /// If a page lies beyond the number of pages given to [`new`](Self::new), or if `each` panics. The rest
    /// of the batch is leaked then.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the batch, given back as it is")]
    pub fn insert(&mut self, batch: Batch, mut each: impl FnMut(PageIdx, usize)) -> Result<(), Batch> {
        let Some(pool) = batch.pool() else { return Ok(()) };
        let Some(mark) = self.mark_of(pool) else { return Err(batch) };
        let batch = std::mem::ManuallyDrop::new(batch);
        self.len += batch.len();
        let marks = &mut *self.marks;
        for &page in batch.pages() {
            let entry = &mut marks[page as usize];
            debug_assert!(*entry == 0, "I1: page {page} is here already");
            *entry = mark;
            each(PageIdx(page), pool.geometry.packet_offset(PageIdx(page)));
        }
        Ok(())
    }

    /// Inserts packets from the front of a vector, at most `most`, each as the page that it lies in; returns
    /// how many. Calls `takes` with the page's number, the packet's offset in the page, and its length in
    /// bytes. Only the page is kept: metadata and bounds of the packet are forgotten.
    ///
    /// Stops at the first packet that `takes` refuses, is not alone in a whole page, has several buffers, is
    /// of another pool than the first, or lies beyond the table. That packet and the rest stay in the vector.
    ///
    /// Inserts none if [`insert`](Self::insert) would give their pages back. If `takes` panics, the packets
    /// that were not inserted are leaked.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, DeviceTable, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let packet = |len| XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
    /// let mut packets = vec![packet(60), packet(61), packet(1514)];
    /// let (mut table, mut ring) = (DeviceTable::new(256), Vec::new());
    /// let mut short = |page, offset, len| {
    ///     ring.push((page, offset));
    ///     len < 1500
    /// };
    /// assert_eq!(table.insert_packets(&mut packets, 64, &mut short), 2);
    /// assert_eq!((table.len(), packets.len(), packets[0].len()), (2, 1, 1514));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline(always)]
    pub fn insert_packets(
        &mut self,
        packets: &mut Vec<XdpBuff>,
        most: usize,
        mut takes: impl FnMut(PageIdx, usize, usize) -> bool,
    ) -> usize {
        let Some(pool) = packets.first().map(|first| first.buffer().pool) else { return 0 };
        let Some(mark) = self.mark_of(pool) else { return 0 };
        let (Self { marks, len, .. }, all) = (self, taken(packets));
        let mut inserted = 0;
        for packet in all.iter().take(most) {
            let (head, alone) = packet.head();
            let page = head.bits.whole_page(); // where it is one
            let Some(entry) = marks.get_mut(page.0 as usize) else { break };
            let whole = alone && head.pool == pool && head.bits.is_whole();
            if !whole || !takes(page, packet.offset(), packet.len()) {
                break;
            }
            debug_assert!(*entry == 0, "I1: page {} is here already", page.0);
            *entry = mark;
            *len += 1; // at once: the closure may panic
            inserted += 1;
        }
        let left = all.len() - inserted;
        all.rotate_left(inserted);
        // SAFETY: I1. The first are those that were not inserted; the others are behind them, where they are
        // forgotten.
        unsafe { packets.set_len(left) };
        inserted
    }

    /// Removes up to `n` pages and appends each to the vector as a packet; returns how many, and the sum of
    /// their bytes. `named` is called with 0, 1, 2, ... and returns where packet number i begins in the area,
    /// and its length in bytes.
    ///
    /// Stops, without changing anything for that packet, where `named` returns `None`, the page is not in the
    /// table or is of another pool than the first, the packet is empty or ends beyond what [`XdpBuff::new`]
    /// takes, or the vector is full: it never grows.
    ///
    /// `named` may be called twice for a packet, and may return something else then: the last value counts,
    /// and is checked. If it panics, the packets removed so far are leaked, and still count in
    /// [`len`](Self::len).
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DeviceTable, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let (mut table, mut ring) = (DeviceTable::new(256), Vec::new());
    /// table.insert(pool.alloc_batch(4), |page, _| ring.push(page)).expect("it has pages of no other area");
    /// let at = |n: usize| u64::from(ring[n].0) * 4096 + 256;
    /// let named = [(at(1), 60), (at(0), 1514), (at(1), 60), (at(2), 60)];
    /// let mut packets = Vec::with_capacity(64);
    /// let taken = table.remove_packets(4, |n| Some(named[n]), &mut packets);
    /// assert_eq!(taken, (2, 1574), "the third was taken before");
    /// assert_eq!((packets[1].buffer().page(), packets[1].len(), table.len()), (ring[0], 1514, 2));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline(always)]
    pub fn remove_packets(
        &mut self,
        n: usize,
        named: impl Fn(usize) -> Option<(u64, u32)>,
        into: &mut Vec<XdpBuff>,
    ) -> (usize, u64) {
        let marks = &mut *self.marks;
        let page_of = |at: u64| usize::try_from(at >> PAGE_SHIFT).unwrap_or(usize::MAX);
        let Some((first, _)) = (n > 0).then(|| named(0)).flatten() else { return (0, 0) };
        let Some(&of) = marks.get(page_of(first)) else { return (0, 0) };
        let Some(&pool) = self.pools.get((of as usize).wrapping_sub(1)) else { return (0, 0) };
        let end = u64::from(whole_end(pool));
        let (mut taken, mut bytes) = (0, 0);
        let room = into.spare_capacity_mut();
        let n = n.min(room.len());
        for place in &mut room[..n] {
            let Some((at, len)) = named(taken) else { break };
            let (page, offset) = (page_of(at), at % PAGE_SIZE as u64);
            let Some(mark) = marks.get_mut(page) else { break };
            if *mark != of || offset + u64::from(len.wrapping_sub(1)) >= end {
                break; // an empty packet ends beyond any page, too
            }
            *mark = 0;
            let page = PageIdx(page as u32); // it was in the table
            place.write(XdpBuff::whole(PageBuf::whole(pool, page), offset as u32, len));
            taken += 1;
            bytes += u64::from(len);
        }
        self.len -= taken;
        // SAFETY: that many entries were written, within the capacity.
        unsafe { into.set_len(into.len() + taken) };
        (taken, bytes)
    }

    /// Removes a page and returns its buffer, if the page is in the table.
    #[inline(always)]
    pub fn remove(&mut self, page: PageIdx) -> Option<PageBuf> {
        let mark = std::mem::take(self.marks.get_mut(page.0 as usize)?);
        let pool = *self.pools.get((mark as usize).wrapping_sub(1))?;
        self.len -= 1;
        Some(PageBuf::whole(pool, page))
    }

    /// Returns all pages of the table to their pools; returns how many.
    pub fn clear(&mut self) -> usize {
        let len = self.len;
        for page in 0..self.marks.len() {
            if self.marks[page] != 0 {
                drop(self.remove(PageIdx(page as u32)));
            }
        }
        len
    }

    /// Leaks all pages of the table, for a device that may still write to them: they stay out for ever.
    /// Returns how many.
    pub fn forget(&mut self) -> usize {
        self.marks.fill(0);
        std::mem::take(&mut self.len)
    }

    /// The mark for pages of a pool. If the table has no page of it, an entry at the same address may be that
    /// of a pool that was freed; it is replaced.
    #[inline(always)]
    fn mark_of(&mut self, pool: PoolPtr) -> Option<u8> {
        match self.pools.first_mut() {
            Some(first) if *first == pool && self.area == pool.area_id => {
                *first = pool;
                Some(1)
            }
            _ => self.other_mark(pool),
        }
    }

    #[cold]
    fn other_mark(&mut self, pool: PoolPtr) -> Option<u8> {
        if self.is_empty() {
            self.area = pool.area_id;
            self.pools.clear();
        }
        if self.area != pool.area_id {
            return None;
        }
        let known = self.pools.iter().position(|&known| known == pool);
        let at = match known {
            None if self.pools.len() == POOLS => self.unused()?,
            known => known.unwrap_or(self.pools.len()),
        };
        match self.pools.get_mut(at) {
            Some(place) => *place = pool,
            None => self.pools.push(pool),
        }
        Some(at as u8 + 1)
    }

    /// The place of a pool of which no page is here.
    fn unused(&self) -> Option<usize> {
        let mut used = [false; POOLS + 1];
        self.marks.iter().for_each(|&mark| used[mark as usize] = true);
        used[1..].iter().position(|used| !used)
    }
}

impl Drop for DeviceTable {
    fn drop(&mut self) {
        self.clear();
    }
}
