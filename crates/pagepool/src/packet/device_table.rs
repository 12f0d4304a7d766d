//! A table of the whole pages that a device has, by page number.
//!
//! What   one byte for each page of the area: 0, or the mark of the pool of the page that is there. A driver
//!        inserts the pages that it gives to a device, and removes each one when the device names it. The
//!        handle is made again from the number.
//! Who    one thread at a time. Dropping the table returns its pages to their pools.
//! I1     the table owns its pages. Only removal gives one up; removing a page that is not there gives
//!        nothing.
//! Life   a pool without pages in the table may be freed, and another pool have its address: an entry of the
//!        list of pools is valid only while a mark names it.
//! Cost   one byte per page is written or read; 64 pages share a cache line.

// UNSAFETY: packets are written behind a vector's end.
#![expect(unsafe_code)]

pub(crate) mod chained;

use crate::buf::batch::Batch;
use crate::buf::bulk::take_front;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::{BasePage, PAGE_SIZE, PageIdx};
use crate::packet::xdp_buff::{XdpBuff, whole_end};

/// Most pools that can have pages in one table.
const POOLS: usize = u8::MAX as usize;

/// Owns the whole pages that a device has, and finds them by number. Takes one byte per page.
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
    len: usize,
    /// Indexed by page. 0: no page. Others: the index of its pool in the list, plus 1.
    marks: Box<[u8]>,
    /// The area of all pages in the table, and their size; meaningless while it is empty.
    area: u64,
    base_page: BasePage,
    pools: Vec<PoolPtr>,
}

impl DeviceTable {
    /// Creates an empty table for an area of `pages` base pages. Allocates one byte per page.
    pub fn new(pages: usize) -> Self {
        let (marks, pools) = (vec![0; pages].into(), Vec::with_capacity(4));
        Self { len: 0, marks, area: 0, base_page: BasePage::DEFAULT, pools }
    }

    /// Inserts all pages of a batch, and calls `each` with each page's number and its packet's offset in it.
    /// `Err(batch)` if the table has pages of another area, or of 255 other pools. May allocate if the pool
    /// is new to the table.
    ///
    /// # Panics
    /// If a page is beyond the `pages` of [`new`](Self::new), or if `each` panics. The rest of the batch is
    /// leaked then.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the error is the batch itself")]
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

    /// Inserts packets from the front of a vector, at most `most`; returns how many. Calls `takes` with the
    /// packet's offset in the area, and its length in bytes. Metadata and bounds of the packets are lost.
    ///
    /// Stops at the first packet that `takes` refuses, that has several buffers, or whose buffer is not a
    /// whole page, belongs to another pool than the first, or is beyond the table. It and the rest stay in
    /// the vector.
    ///
    /// Inserts none if the table has pages of another area, or of 255 other pools. If `takes` panics,
    /// packets not inserted are leaked.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, DeviceTable, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let packet = |len| XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
    /// let mut packets = vec![packet(60), packet(61), packet(1514)];
    /// let (mut table, mut ring) = (DeviceTable::new(256), Vec::new());
    /// let mut short = |at, len| {
    ///     ring.push(at);
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
        mut takes: impl FnMut(u64, usize) -> bool,
    ) -> usize {
        let Some(pool) = packets.first().map(|first| first.buffer().pool) else { return 0 };
        let Some(mark) = self.mark_of(pool) else { return 0 };
        let (base_page, marks, len) = (self.base_page, &mut *self.marks, &mut self.len);
        take_front(packets, most, |packet| {
            let (head, alone) = packet.head();
            let page = head.bits.whole_page(); // used only if it is one
            let Some(entry) = marks.get_mut(page.0 as usize) else { return false };
            let is_page = alone && head.pool == pool && head.bits.is_whole();
            let (offset, bytes) = packet.span();
            if !is_page || !takes(base_page.start_of(page) + offset as u64, bytes) {
                return false;
            }
            debug_assert!(*entry == 0, "I1: page {page:?} is here already");
            *entry = mark;
            *len += 1; // now: the closure may panic
            true
        })
    }

    /// Removes up to `n` pages and appends each to the vector as a packet; returns how many, and the sum of
    /// their bytes. `named` is called with 0, 1, 2, ... and returns where packet number i begins in the area,
    /// and its length in bytes.
    ///
    /// Stops, before a change for that packet, if `named` returns `None`, the page is not in the table or
    /// belongs to another pool than the first, the packet is empty or [`XdpBuff::new`] would refuse it, or
    /// the vector is full: it never grows.
    ///
    /// `named` may be called twice for a packet and return different values: the last is checked and used. If
    /// it panics, the packets removed so far are leaked, and still count in [`len`](Self::len).
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
        // A loop for each size of pages: shifts by constants keep a register free.
        match self.base_page.is_half() {
            true => self.remove_packets_of::<{ PAGE_SIZE / 2 }>(n, named, into),
            false => self.remove_packets_of::<PAGE_SIZE>(n, named, into),
        }
    }

    #[inline(always)]
    fn remove_packets_of<const PAGE: usize>(
        &mut self,
        n: usize,
        named: impl Fn(usize) -> Option<(u64, u32)>,
        into: &mut Vec<XdpBuff>,
    ) -> (usize, u64) {
        let page_of = |at: u64| usize::try_from(at / PAGE as u64).unwrap_or(usize::MAX);
        let Some((first, _)) = (n > 0).then(|| named(0)).flatten() else { return (0, 0) };
        let Some(&of) = self.marks.get(page_of(first)) else { return (0, 0) };
        let Some(pool) = self.pool_of(of) else { return (0, 0) };
        let (marks, end, mut taken, mut bytes) = (&mut *self.marks, whole_end(pool).into(), 0, 0);
        let room = into.spare_capacity_mut();
        let n = n.min(room.len());
        for written in &mut room[..n] {
            let Some((at, len)) = named(taken) else { break };
            let (page, offset) = (page_of(at), at % PAGE as u64);
            let Some(mark) = marks.get_mut(page) else { break };
            if *mark != of || offset + u64::from(len.wrapping_sub(1)) >= end {
                break; // also if the packet is empty: its length wraps
            }
            *mark = 0;
            let page = PageBuf::whole(pool, PageIdx(page as u32)); // it was in the table
            written.write(XdpBuff::within(page, offset as u32, len));
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
        let pool = self.pool_of(mark)?;
        self.len -= 1;
        Some(PageBuf::whole(pool, page))
    }

    /// Returns all pages to their pools; returns how many.
    pub fn clear(&mut self) -> usize {
        let len = self.len;
        (0..self.marks.len() as u32).for_each(|page| drop(self.remove(PageIdx(page))));
        len
    }

    /// Leaks all pages, because a device may still write to them: they stay out forever. Returns how many.
    pub fn forget(&mut self) -> usize {
        self.marks.fill(0);
        std::mem::take(&mut self.len)
    }

    /// The pool of a mark.
    #[inline(always)]
    pub(crate) fn pool_of(&self, mark: u8) -> Option<PoolPtr> {
        self.pools.get((mark as usize).wrapping_sub(1)).copied()
    }

    /// The mark for pages of a pool. `None` if the table has pages of another area, or of 255 other
    /// pools.
    #[inline(always)]
    pub(crate) fn mark_of(&mut self, pool: PoolPtr) -> Option<u8> {
        match self.pools.first() {
            Some(first) if *first == pool && self.area == pool.area_id => Some(1),
            _ => self.other_mark(pool),
        }
    }

    #[cold]
    fn other_mark(&mut self, pool: PoolPtr) -> Option<u8> {
        if self.len == 0 {
            (self.area, self.base_page) = (pool.area_id, pool.geometry.base_page);
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

    /// Index of a pool that no mark names.
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
