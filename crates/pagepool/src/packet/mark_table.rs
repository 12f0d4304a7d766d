//! A table of the buffers that a device has, by their place in the area.
//!
//! What   one byte for each place where a buffer of the table's kind can begin: 0, or the mark of the pool of
//!        the buffer that is there. A driver inserts the buffers that it gives to a device, and removes each
//!        one when the device names it. The handle is made again from the place.
//! Who    one thread at a time. Dropping the table returns its buffers to their pools.
//! I1     the table owns its buffers. Only removal gives one up; removing from a place without one gives
//!        nothing.
//! Life   a pool without buffers in the table may be freed, and another pool have its address: an entry of
//!        the list of pools is valid only while a mark names it.
//! Cost   one byte per buffer is written or read; 64 places share a cache line.

// UNSAFETY: packets are written behind a vector's end.
#![expect(unsafe_code)]

use crate::buf::bulk::take_front;
use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::{PAGE_SHIFT, PAGE_SIZE, PageIdx};
use crate::packet::xdp_buff::{XdpBuff, whole_end};

/// Most pools that can have buffers in one table.
const POOLS: usize = u8::MAX as usize;

/// Owns the buffers that a device has, and finds them by their place: [`DeviceTable`](crate::DeviceTable)
/// whole pages, [`FragTable`](crate::FragTable) fragments of one size.
#[derive(Debug)]
pub struct MarkTable<const FRAGS: bool> {
    pub(super) len: usize,
    pub(super) places: Places<FRAGS>,
    /// Indexed by place. 0: no buffer. Others: the index of its pool in the list, plus 1.
    pub(super) marks: Box<[u8]>,
    /// The area of all buffers in the table; meaningless while it is empty.
    area: u64,
    pools: Vec<PoolPtr>,
}

impl<const FRAGS: bool> MarkTable<FRAGS> {
    /// An empty table with `n` places, `1 << shift` bytes each.
    pub(crate) fn of(shift: u32, n: usize) -> Self {
        let places = Places { shift };
        Self { len: 0, places, marks: vec![0; n].into(), area: 0, pools: Vec::with_capacity(4) }
    }

    /// Buffers in the table.
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
    /// whole page (in a [`FragTable`](crate::FragTable): a fragment of the table's size at a multiple of it),
    /// belongs to another pool than the first, or is beyond the table. It and the rest stay in the vector.
    ///
    /// Inserts none if the table has buffers of another area, or of 255 other pools. If `takes` panics,
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
        let (places, marks, len) = (self.places, &mut *self.marks, &mut self.len);
        take_front(packets, most, |packet| {
            let (head, alone) = packet.head();
            let (place, start) = places.of(head.bits); // used only if it has a place
            let Some(entry) = marks.get_mut(place) else { return false };
            let has_place = alone && head.pool == pool && places.has(head.bits);
            let (offset, bytes) = packet.span();
            if !has_place || !takes(start + offset as u64, bytes) {
                return false;
            }
            debug_assert!(*entry == 0, "I1: a buffer at {start} is here already");
            *entry = mark;
            *len += 1; // now: the closure may panic
            true
        })
    }

    /// Removes up to `n` buffers and appends each to the vector as a packet; returns how many, and the sum of
    /// their bytes. `named` is called with 0, 1, 2, ... and returns where packet number i begins in the area,
    /// and its length in bytes.
    ///
    /// Stops, before a change for that packet, if `named` returns `None`, the buffer is not in the table or
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
        let (places, shift) = (self.places, self.places.shift());
        let Some((first, _)) = (n > 0).then(|| named(0)).flatten() else { return (0, 0) };
        let Some(&of) = self.marks.get(places.at(first)) else { return (0, 0) };
        let Some(pool) = self.pool_of(of) else { return (0, 0) };
        let (marks, end, mut taken, mut bytes) = (&mut *self.marks, places.end(pool), 0, 0);
        let room = into.spare_capacity_mut();
        let n = n.min(room.len());
        for written in &mut room[..n] {
            let Some((at, len)) = named(taken) else { break };
            let offset = at & ((1 << shift) - 1);
            let place = places.at(at);
            let Some(mark) = marks.get_mut(place) else { break };
            if *mark != of || offset + u64::from(len.wrapping_sub(1)) >= end {
                break; // also if the packet is empty: its length wraps
            }
            *mark = 0;
            let buffer = places.buffer(pool, place, at - offset); // it was in the table
            written.write(XdpBuff::within(buffer, offset as u32, len));
            taken += 1;
            bytes += u64::from(len);
        }
        self.len -= taken;
        // SAFETY: that many entries were written, within the capacity.
        unsafe { into.set_len(into.len() + taken) };
        (taken, bytes)
    }

    /// Removes the buffer at a place, if there is one; returns its pool.
    #[inline(always)]
    pub(crate) fn take(&mut self, place: usize) -> Option<PoolPtr> {
        let mark = std::mem::take(self.marks.get_mut(place)?);
        let pool = self.pool_of(mark)?;
        self.len -= 1;
        Some(pool)
    }

    /// Returns all buffers to their pools; returns how many.
    pub fn clear(&mut self) -> usize {
        let len = self.len;
        for place in 0..self.marks.len() {
            if let Some(pool) = self.take(place) {
                drop(self.places.buffer(pool, place, (place as u64) << self.places.shift()));
            }
        }
        len
    }

    /// Leaks all buffers, because a device may still write to them: they stay out forever. Returns how many.
    pub fn forget(&mut self) -> usize {
        self.marks.fill(0);
        std::mem::take(&mut self.len)
    }

    /// The pool of a mark.
    #[inline(always)]
    pub(crate) fn pool_of(&self, mark: u8) -> Option<PoolPtr> {
        self.pools.get((mark as usize).wrapping_sub(1)).copied()
    }

    /// The mark for buffers of a pool. `None` if the table has buffers of another area, or of 255 other
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

    /// Index of a pool that no mark names.
    fn unused(&self) -> Option<usize> {
        let mut used = [false; POOLS + 1];
        self.marks.iter().for_each(|&mark| used[mark as usize] = true);
        used[1..].iter().position(|used| !used)
    }
}

impl<const FRAGS: bool> Drop for MarkTable<FRAGS> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Where the buffers of a table can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<const FRAGS: bool> {
    shift: u32,
}

impl<const FRAGS: bool> Places<FRAGS> {
    /// log2 of the bytes from one place to the next.
    #[inline(always)]
    pub(crate) fn shift(self) -> u32 {
        if FRAGS { self.shift } else { PAGE_SHIFT }
    }

    /// Index of the place of an offset in the area.
    #[inline(always)]
    pub(crate) fn at(self, offset: u64) -> usize {
        usize::try_from(offset >> self.shift()).unwrap_or(usize::MAX)
    }

    /// Whether the buffer has a place, if it is in the table's area: it is a plain whole page, or a fragment
    /// of the table's size at a multiple of it.
    #[inline(always)]
    pub(crate) fn has(self, buffer: HandleBits) -> bool {
        if !FRAGS {
            return buffer.is_whole();
        }
        // All bits are fixed except the page's number and the offset in the base page.
        let size = 1usize << self.shift;
        let first = HandleBits::frag(PageIdx(0), 0, size).bits();
        let offsets = HandleBits::frag(PageIdx(0), PAGE_SIZE - size, size).bits() ^ first;
        buffer.bits() & !(offsets | ((1 << 30) - 1)) == first
    }

    /// The place of a buffer that has one, and its start in the area. Each is computed from the handle, and
    /// neither from the other, which costs instructions.
    #[inline(always)]
    pub(crate) fn of(self, buffer: HandleBits) -> (usize, u64) {
        if FRAGS {
            let start = buffer.start_in_eights();
            return (self.at(start), start);
        }
        let page = buffer.whole_page();
        (page.0 as usize, page.offset())
    }

    /// The buffer at a place, which begins at `start` in the area; the caller owns it.
    #[inline(always)]
    pub(crate) fn buffer(self, pool: PoolPtr, place: usize, start: u64) -> PageBuf {
        let bits = match FRAGS {
            true => HandleBits::frag_from(start, 1 << self.shift),
            false => HandleBits::whole(PageIdx(place as u32)),
        };
        PageBuf { pool, bits }
    }

    /// Where a packet must end in its buffer at the latest.
    #[inline(always)]
    fn end(self, pool: PoolPtr) -> u64 {
        if FRAGS { 1 << self.shift } else { whole_end(pool).into() }
    }
}
