//! Packets of several whole pages in a device's tables.

use crate::buf::bulk::take_front;
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::{BasePage, PageIdx};
use crate::packet::chain::{Frag, MAX_FRAGS};
use crate::packet::device_table::DeviceTable;
use crate::packet::xdp_buff::{XdpBuff, whole_end};

impl DeviceTable {
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
                    (XdpBuff::within(page, offset, len), more)
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
        let base_page = self.base_page;
        let mark = *self.marks.get(base_page.number_at(first) as usize)?;
        let pool = self.pool_of(mark)?;
        let end = u64::from(whole_end(pool));
        Some(NamedPages { marks: &mut self.marks, base_page, named, mark, pool, end, taken: 0 })
    }
}

/// Pages of one pool that are being removed from a table, as `named` names them.
struct NamedPages<'a, F> {
    marks: &'a mut [u8],
    base_page: BasePage,
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
        let (page, offset) = (self.base_page.number_at(at), at & (self.base_page.bytes() - 1));
        let mark = self.marks.get_mut(page as usize)?;
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
            let Some((page, offset, len, more)) = self.next(self.base_page.bytes()) else { break };
            let _ = list.push(Frag::new(page, offset as usize, len as usize)); // there is room
            if !more {
                return false;
            }
        }
        if list.is_empty() {
            packet.forget_frags(); // puts the block back
        }
        true
    }
}
