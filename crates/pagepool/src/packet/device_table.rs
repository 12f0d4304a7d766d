//! A table of the whole pages that a device has, by page number.
//!
//! What   one byte for each page of an area: 0, or the mark of the page's pool. A driver inserts the pages
//!        that it gives to a device, and removes each one when the device names it.
//! Who    one thread at a time. Dropping the table returns its pages to their pools.
//! I1     the table owns its pages. Only removal gives one up; removing a number that is not in it gives
//!        nothing.
//! Cost   one byte per page is written or read; 64 pages share a cache line.

// UNSAFETY: inserted pages become numbers, and handles again when removed; see I1.
#![expect(unsafe_code)]

use crate::buf::batch::Batch;
use crate::buf::bulk::take_front;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::{PAGE_SHIFT, PAGE_SIZE, PageIdx};
use crate::packet::chain::{Frag, MAX_FRAGS};
use crate::packet::marked_pools::MarkedPools;
use crate::packet::xdp_buff::{XdpBuff, whole_end};

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
    /// Indexed by page number.
    marks: Box<[u8]>,
    pools: MarkedPools,
}

// SAFETY: I1. Only the table owns its pages, and the shared parts of their pools are `Sync`.
unsafe impl Send for DeviceTable {}
// SAFETY: nothing can be changed through a shared reference.
unsafe impl Sync for DeviceTable {}

impl DeviceTable {
    /// Creates an empty table for an area of `pages` pages. Allocates one byte per page.
    pub fn new(pages: usize) -> Self {
        Self { len: 0, marks: vec![0; pages].into(), pools: MarkedPools::new() }
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

    /// Inserts packets from the front of a vector, at most `most`; returns how many. Calls `takes` with the
    /// page's number, the packet's offset in it, and its length in bytes. Metadata and bounds of the packets
    /// are lost.
    ///
    /// Stops at the first packet that `takes` refuses, that has several buffers, or whose buffer is not a
    /// whole page, belongs to another pool than the first, or is beyond the table. It and the rest stay in
    /// the vector.
    ///
    /// Inserts none if [`insert`](Self::insert) would refuse their pages. If `takes` panics, packets not
    /// inserted are leaked.
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
        let Self { marks, len, .. } = self;
        take_front(packets, most, |packet| {
            let (head, alone) = packet.head();
            let page = head.bits.whole_page(); // used only if it is one
            let Some(entry) = marks.get_mut(page.0 as usize) else { return false };
            let whole = alone && head.pool == pool && head.bits.is_whole();
            if !whole || !takes(page, packet.offset(), packet.len()) {
                return false;
            }
            debug_assert!(*entry == 0, "I1: page {} is here already", page.0);
            *entry = mark;
            *len += 1; // now: the closure may panic
            true
        })
    }

    /// Inserts packets of one or more whole pages, like [`insert_packets`](Self::insert_packets): the last
    /// page of each into this table, the others into `before`. A packet counts once here, and is complete
    /// with its last page. Calls `takes` with each packet.
    ///
    /// Packets may have several buffers, each a whole page of the first packet's pool; otherwise stops like
    /// `insert_packets`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, DeviceTable, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 3000).unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 256, 1000).unwrap();
    /// let last = packet.frags()[0].buffer().page();
    /// let (mut table, mut before) = (DeviceTable::new(256), DeviceTable::new(256));
    /// let mut packets = vec![packet];
    /// assert_eq!(table.insert_chained(&mut before, &mut packets, 64, |packet| packet.len() == 4000), 1);
    /// assert_eq!((table.len(), before.len(), pool.inflight().out), (1, 1, 2));
    /// assert_eq!(table.remove(last).map(|page| page.page()), Some(last));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline(always)]
    pub fn insert_chained(
        &mut self,
        before: &mut DeviceTable,
        packets: &mut Vec<XdpBuff>,
        most: usize,
        mut takes: impl FnMut(&XdpBuff) -> bool,
    ) -> usize {
        let Some(pool) = packets.first().map(|first| first.buffer().pool) else { return 0 };
        let (Some(mark), Some(mark_before)) = (self.mark_of(pool), before.mark_of(pool)) else { return 0 };
        let pages = self.marks.len().min(before.marks.len());
        let fits = |buffer: &PageBuf| {
            buffer.pool == pool && buffer.bits.is_whole() && (buffer.bits.whole_page().0 as usize) < pages
        };
        take_front(packets, most, |packet| {
            let frags = packet.frags();
            let fit = fits(packet.buffer()) && frags.iter().all(|frag| fits(frag.buffer()));
            if !fit || !takes(packet) {
                return false;
            }
            let mut last = packet.buffer();
            for frag in frags {
                before.marks[last.bits.whole_page().0 as usize] = mark_before;
                last = frag.buffer();
            }
            self.marks[last.bits.whole_page().0 as usize] = mark;
            before.len += frags.len();
            self.len += 1;
            if packet.has_frags() {
                packet.forget_frags(); // the tables own them now
            }
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
        let marks = &mut *self.marks;
        let Some((first, _)) = (n > 0).then(|| named(0)).flatten() else { return (0, 0) };
        let Some(&of) = marks.get(page_of(first)) else { return (0, 0) };
        let Some(pool) = self.pools.of(of) else { return (0, 0) };
        let end = u64::from(whole_end(pool));
        let (mut taken, mut bytes) = (0, 0);
        let room = into.spare_capacity_mut();
        let n = n.min(room.len());
        for place in &mut room[..n] {
            let Some((at, len)) = named(taken) else { break };
            let (page, offset) = (page_of(at), at % PAGE_SIZE as u64);
            let Some(mark) = marks.get_mut(page) else { break };
            if *mark != of || offset + u64::from(len.wrapping_sub(1)) >= end {
                break; // also if the packet is empty: its length wraps
            }
            *mark = 0;
            let page = PageIdx(page as u32); // fits: it was in the table
            place.write(XdpBuff::whole(PageBuf::whole(pool, page), offset as u32, len));
            taken += 1;
            bytes += u64::from(len);
        }
        self.len -= taken;
        // SAFETY: that many entries were written, within the capacity.
        unsafe { into.set_len(into.len() + taken) };
        (taken, bytes)
    }

    /// Removes up to `n` pages of packets of one or more pages, and appends each complete packet to the
    /// vector; returns how many pages, and the bytes of the complete packets. `named` returns, for page
    /// number i, where its part of the packet begins in the area, the part's length in bytes, and whether the
    /// packet continues in the next page.
    ///
    /// `begun` is the packet whose last page has not come: it is continued first, and receives one that stays
    /// incomplete.
    ///
    /// Stops like [`remove_packets`](Self::remove_packets), also within a packet, and if a packet would have
    /// more than `max_buffers` pages or its pool has no [chain](crate::PoolParams::chains) for it. Data may
    /// end anywhere in a further page.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, DeviceTable, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { chains: 8, ..Default::default() }, arena)?.bind();
    /// let (mut table, mut ring) = (DeviceTable::new(256), Vec::new());
    /// table.insert(pool.alloc_batch(4), |page, _| ring.push(page)).expect("it has pages of no other area");
    /// let at = |n: usize| u64::from(ring[n].0) * 4096 + 256;
    /// let named = [(at(0), 3840, true), (at(1), 160, false), (at(2), 3840, true)];
    /// let (mut begun, mut packets) = (None, Vec::with_capacity(64));
    /// let taken = table.remove_chained(3, |n| Some(named[n]), 18, &mut begun, &mut packets);
    /// assert_eq!((taken, packets[0].len(), packets[0].frags().len()), ((3, 4000), 4000, 1));
    /// let taken = table.remove_chained(1, |_| Some((at(3), 60, false)), 18, &mut begun, &mut packets);
    /// assert_eq!((taken, packets[1].len(), begun.is_none()), ((1, 3900), 3900, true));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline(always)]
    pub fn remove_chained(
        &mut self,
        n: usize,
        named: impl Fn(usize) -> Option<(u64, u32, bool)>,
        max_buffers: usize,
        begun: &mut Option<XdpBuff>,
        into: &mut Vec<XdpBuff>,
    ) -> (usize, u64) {
        let Some(mut pages) = self.pages_named(n, named) else { return (0, 0) };
        let mut bytes = 0;
        while pages.taken < n && into.len() < into.capacity() {
            let (packet, mut goes_on) = match begun.take() {
                Some(packet) => (packet, true),
                None => {
                    let Some((page, offset, len, more)) = pages.next(pages.end) else { break };
                    (XdpBuff::whole(page, offset, len), more)
                }
            };
            into.push(packet); // its final place: it is not moved again
            let Some(packet) = into.last_mut() else { break };
            if goes_on {
                goes_on = pages.append_to(packet, n, max_buffers);
            }
            if goes_on {
                *begun = into.pop();
                break;
            }
            bytes += packet.len() as u64;
        }
        let taken = pages.taken;
        self.len -= taken;
        (taken, bytes)
    }

    /// The pages that `named` names; `None` if the first of the `n` is not in the table.
    #[inline(always)]
    fn pages_named<F: Fn(usize) -> Option<(u64, u32, bool)>>(
        &mut self,
        n: usize,
        named: F,
    ) -> Option<NamedPages<'_, F>> {
        let (first, ..) = (n > 0).then(|| named(0)).flatten()?;
        let mark = *self.marks.get(page_of(first))?;
        let pool = self.pools.of(mark)?;
        let end = u64::from(whole_end(pool));
        Some(NamedPages { marks: &mut self.marks, named, mark, pool, end, taken: 0 })
    }

    /// Removes a page and returns its buffer, if the page is in the table.
    #[inline(always)]
    pub fn remove(&mut self, page: PageIdx) -> Option<PageBuf> {
        let mark = std::mem::take(self.marks.get_mut(page.0 as usize)?);
        let pool = self.pools.of(mark)?;
        self.len -= 1;
        Some(PageBuf::whole(pool, page))
    }

    /// Returns all pages to their pools; returns how many.
    pub fn clear(&mut self) -> usize {
        let len = self.len;
        for page in 0..self.marks.len() {
            if self.marks[page] != 0 {
                drop(self.remove(PageIdx(page as u32)));
            }
        }
        len
    }

    /// Leaks all pages, because a device may still write to them: they stay out forever. Returns how many.
    pub fn forget(&mut self) -> usize {
        self.marks.fill(0);
        std::mem::take(&mut self.len)
    }

    /// The mark for pages of a pool.
    #[inline(always)]
    fn mark_of(&mut self, pool: PoolPtr) -> Option<u8> {
        self.pools.mark_of(pool, &self.marks, self.len)
    }
}

/// Number of the page at an offset in the area.
#[inline(always)]
fn page_of(at: u64) -> usize {
    usize::try_from(at >> PAGE_SHIFT).unwrap_or(usize::MAX)
}

/// Pages of one pool that are being removed from a table, as `named` names them.
struct NamedPages<'a, F> {
    marks: &'a mut [u8],
    named: F,
    mark: u8,
    pool: PoolPtr,
    /// Where the data of a packet's first page must end at the latest.
    end: u64,
    taken: usize,
}

impl<F: Fn(usize) -> Option<(u64, u32, bool)>> NamedPages<'_, F> {
    /// Removes the next page: its buffer, offset and length of its data, and whether the packet continues.
    /// `None` if it is not in the table or the data ends beyond `end`.
    #[inline(always)]
    fn next(&mut self, end: u64) -> Option<(PageBuf, u32, u32, bool)> {
        let (at, len, more) = (self.named)(self.taken)?;
        let (page, offset) = (page_of(at), at % PAGE_SIZE as u64);
        let mark = self.marks.get_mut(page)?;
        if *mark != self.mark || offset + u64::from(len.wrapping_sub(1)) >= end {
            return None; // also if the part is empty: its length wraps
        }
        *mark = 0;
        self.taken += 1;
        let page = PageIdx(page as u32); // fits: it was in the table
        Some((PageBuf::whole(self.pool, page), offset as u32, len, more))
    }

    /// Appends pages to a packet until it is complete; returns whether it still continues.
    #[inline(always)]
    fn append_to(&mut self, packet: &mut XdpBuff, n: usize, max_buffers: usize) -> bool {
        // Checked first: a page that is removed needs a place in the packet.
        let may_follow = self.taken < n && (self.named)(self.taken).is_some();
        let Some(list) = may_follow.then(|| packet.list()).flatten() else { return true };
        while self.taken < n && list.len() + 1 < max_buffers.min(MAX_FRAGS + 1) {
            let Some((page, offset, len, more)) = self.next(PAGE_SIZE as u64) else { break };
            let _ = list.push(Frag::new(page, offset as usize, len as usize)); // there is room
            if !more {
                return false;
            }
        }
        if list.is_empty() {
            let none = packet.pop_frag(); // puts the block back
            debug_assert!(none.is_none());
        }
        true
    }
}

impl Drop for DeviceTable {
    fn drop(&mut self) {
        self.clear();
    }
}
