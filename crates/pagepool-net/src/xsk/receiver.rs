//! The receiving half: gives the kernel buffers on the fill ring, and makes packets of what comes on the receive ring.
//!
//! Table  every buffer that the kernel was given, by the place of its chunk in the UMEM, until it comes back with a packet.
//!        So nothing is lost to what the kernel keeps to itself or discards silently, and at the end all of it is taken
//!        back, whatever the rings say.
//! Trust  none. An address that was not given is counted and never followed; a length that the buffer has not, counted, and
//!        the buffer goes home. A packet of which a part is wrong is dropped up to its end.
//! Rule   as many buffers are out as the receive ring and the driver's ring have slots together; the fill ring has room
//!        for twice that, so that its stale index keeps none back.
//! I4     a buffer is in the table, where nobody reaches its bytes, from before its address is on the fill ring until that
//!        address comes back on the receive ring, or until the socket is closed.

use pagepool::{Batch, Bound, Buff, PageBuf};

use super::ring::{Consumer, Producer};
use super::sys::socket::{CONTINUED, Mapped};
use super::umem::Layout;
use crate::device::DeviceStats;
use crate::reach::Reach;

/// Descriptors that are looked for at once.
const BURST: usize = 64;
/// In unaligned mode an address is where the chunk begins, and above these bits how far behind that the packet is.
const BASE_BITS: u32 = 48;

/// A descriptor of the receive or transmit ring. Linux: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

impl Descriptor {
    #[inline(always)]
    pub(super) fn to_words(self) -> [u64; 2] {
        let ([a, b, c, d], [e, f, g, h]) = (self.len.to_ne_bytes(), self.options.to_ne_bytes());
        [self.addr, u64::from_ne_bytes([a, b, c, d, e, f, g, h])]
    }

    #[inline(always)]
    pub(super) fn of_words([addr, rest]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = rest.to_ne_bytes();
        Self { addr, len: u32::from_ne_bytes([a, b, c, d]), options: u32::from_ne_bytes([e, f, g, h]) }
    }
}

type Fill = Producer<Mapped, 1>;

/// The rings of this half. While they are mapped the kernel keeps the socket, closed or not.
#[derive(Debug)]
pub(super) struct RxRings {
    pub(super) fill: Fill,
    pub(super) received: Consumer<Mapped, 2>,
}

#[derive(Debug)]
pub(super) struct Receiver {
    layout: Layout,
    /// By the place of the chunk: what the kernel has. 16 bytes for each page of the UMEM.
    given: Box<[Option<PageBuf>]>,
    /// How many there are, and how many there shall be.
    out: usize,
    most: usize,
    /// The packet whose last buffer has not come yet.
    partial: Option<Buff>,
    /// Whether buffers are dropped up to the end of a packet of which one was wrong.
    skipping: bool,
    max_buffers: usize,
}

impl Receiver {
    pub(super) fn new(layout: Layout, most: usize, max_buffers: usize) -> Self {
        let units = layout.len >> layout.unit_shift;
        let given = (0..units).map(|_| None).collect();
        Self { layout, given, out: 0, most, partial: None, skipping: false, max_buffers }
    }

    /// Moves packets into the vector, within its capacity and the budget.
    #[inline]
    pub(super) fn receive(
        &mut self,
        rings: &mut RxRings,
        into: &mut Vec<Buff>,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        let ring = &mut rings.received;
        let most = budget.min(into.capacity() - into.len());
        let before = into.len();
        while into.len() - before < most {
            let got = ring.peek(BURST.min(most - (into.len() - before)));
            if got == 0 {
                break;
            }
            for _ in 0..got {
                let descriptor = Descriptor::of_words(ring.pop());
                if let Some(packet) = self.accept(descriptor, stats) {
                    stats.rx_bytes += packet.len() as u64;
                    into.push(packet);
                }
            }
            ring.release();
        }
        let n = into.len() - before;
        stats.rx_packets += n as u64;
        n
    }

    /// A buffer that came back; gives the packet that ends with it.
    #[inline]
    fn accept(&mut self, got: Descriptor, stats: &mut DeviceStats) -> Option<Buff> {
        let last = got.options & CONTINUED == 0;
        let (unit, offset) = self.place(got.addr);
        let Some(buffer) = self.given.get_mut(unit).and_then(Option::take) else {
            stats.rx_bad_descriptor += 1;
            return self.spoilt(last);
        };
        self.out -= 1;
        let len = got.len as usize;
        if last && self.partial.is_none() && !self.skipping && len > 0 {
            return Buff::new(buffer, offset, len).map_err(|_| stats.rx_bad_length += 1).ok();
        }
        self.append(buffer, offset, len, last, stats)
    }

    /// Where in the table, and how far behind the beginning of that buffer, an address is.
    #[inline(always)]
    fn place(&self, addr: u64) -> (usize, usize) {
        let addr = match self.layout.unaligned {
            true => (addr & ((1 << BASE_BITS) - 1)) + (addr >> BASE_BITS),
            false => addr,
        };
        let shift = self.layout.unit_shift;
        ((addr >> shift) as usize, (addr & ((1 << shift) - 1)) as usize)
    }

    /// A part of a packet of several buffers, or a buffer with nothing in it.
    fn append(
        &mut self,
        buffer: PageBuf,
        offset: usize,
        len: usize,
        last: bool,
        stats: &mut DeviceStats,
    ) -> Option<Buff> {
        if len == 0 || offset + len > buffer.len() {
            stats.rx_bad_length += 1;
            return self.spoilt(last);
        }
        if self.skipping {
            self.skipping = !last;
            return None;
        }
        let packet = match self.partial.take() {
            Some(packet) => self.joined(packet, buffer, offset, len),
            None => match Buff::new(buffer, offset, len) {
                Ok(packet) => Some(packet),
                Err(_) => {
                    stats.rx_bad_length += 1; // it reaches into its pool's tailroom
                    return self.spoilt(last);
                }
            },
        };
        if packet.is_none() {
            stats.rx_too_many_buffers += 1;
            return self.spoilt(last);
        }
        if last {
            return packet;
        }
        self.partial = packet;
        None
    }

    fn joined(&self, mut packet: Buff, buffer: PageBuf, offset: usize, len: usize) -> Option<Buff> {
        let fits = packet.frags().len() + 1 < self.max_buffers;
        (fits && packet.add_frag(buffer, offset, len).is_ok()).then_some(packet)
    }

    /// The packet that is being put together has a part that is wrong: it is dropped, and so is the rest of it.
    #[cold]
    fn spoilt(&mut self, last: bool) -> Option<Buff> {
        self.partial = None;
        self.skipping = !last;
        None
    }

    /// Gives the kernel buffers until it has as many as it shall have.
    #[inline]
    pub(super) fn refill(
        &mut self,
        rings: &mut RxRings,
        pool: &Bound,
        reach: &mut Reach,
        stats: &mut DeviceStats,
    ) {
        let want = self.most.saturating_sub(self.out + self.waiting());
        if want == 0 {
            return;
        }
        let fill = &mut rings.fill;
        let want = want.min(fill.room(want));
        let unmapped = match self.layout.unit_shift {
            pagepool::PAGE_SHIFT => self.refill_pages(fill, want, pool, reach),
            _ => self.refill_pieces(fill, want, pool, reach),
        };
        stats.rx_unmapped += unmapped as u64;
        fill.submit();
    }

    /// Says how many pages were of a pool that is not of this UMEM. If the pool is empty it wakes whoever waits when it is
    /// not.
    fn refill_pages(&mut self, fill: &mut Fill, mut want: usize, pool: &Bound, reach: &mut Reach) -> usize {
        while want > 0 {
            let asked = want.min(Batch::MAX);
            let mut batch = pool.alloc_batch(asked);
            let got = batch.len();
            while let Some(page) = batch.pop() {
                if !self.give(fill, page, reach) {
                    return 1 + batch.len(); // what is left of the batch goes home
                }
            }
            if got < asked {
                return 0;
            }
            want -= got;
        }
        0
    }

    fn refill_pieces(&mut self, fill: &mut Fill, want: usize, pool: &Bound, reach: &mut Reach) -> usize {
        for _ in 0..want {
            let Some(piece) = pool.alloc_frag(self.layout.chunk as usize) else { return 0 };
            if !self.give(fill, piece, reach) {
                return 1;
            }
        }
        0
    }

    /// The kernel's from here on, if it lies in the UMEM, at the beginning of a chunk; else it goes home.
    #[inline]
    pub(super) fn give(&mut self, fill: &mut Fill, buffer: PageBuf, reach: &mut Reach) -> bool {
        let Some(at) = reach.addr_of(&buffer) else { return false };
        let unit = 1u64 << self.layout.unit_shift;
        let entry = self.given.get_mut((at.0 >> self.layout.unit_shift) as usize);
        let Some(entry) = entry.filter(|entry| at.0 & (unit - 1) == 0 && entry.is_none()) else {
            return false;
        };
        let colour = match self.layout.unaligned {
            true => self.layout.colour(buffer.packet_offset()),
            false => 0,
        };
        *entry = Some(buffer);
        self.out += 1;
        fill.push([at.0 + colour]);
        true
    }

    /// Buffers of the packet whose last one has not come yet.
    fn waiting(&self) -> usize {
        self.partial.as_ref().map_or(0, |packet| 1 + packet.frags().len())
    }

    /// Buffers that the kernel has, or that wait for the rest of their packet.
    pub(super) fn held(&self) -> usize {
        self.out + self.waiting()
    }

    /// Leaks what the kernel has.
    pub(super) fn forget(&mut self) {
        self.given.iter_mut().for_each(|entry| std::mem::forget(entry.take()));
    }

    /// Takes everything back, once the socket is closed; says how many buffers there were.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held();
        self.partial = None;
        self.given.iter_mut().for_each(|entry| drop(entry.take()));
        self.out = 0;
        held
    }
}

impl Layout {
    /// How far into its page a chunk begins, so that the packet lies where the pool would have it, as far as the chunk
    /// stays in the page: Linux discards an address whose chunk does not, without a word, where the next page is not the
    /// next in its memory.
    #[inline]
    fn colour(&self, packet_offset: usize) -> u64 {
        let most = (1u64 << self.unit_shift) - u64::from(self.chunk);
        (packet_offset as u64).saturating_sub(u64::from(self.before)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coloured_chunk_stays_in_its_page() {
        let layout = Layout { chunk: 3136, before: 256, unaligned: true, unit_shift: 12, len: 1 << 20 };
        assert_eq!((layout.colour(0), layout.colour(256), layout.colour(320)), (0, 0, 64));
        assert_eq!(layout.colour(256 + 960), 960, "the last colour that fits");
        assert_eq!(layout.colour(4095), 960, "not past the page");
    }

    #[test]
    fn a_descriptor_is_two_words() {
        let descriptor = Descriptor { addr: 77, len: 60, options: 1 };
        assert_eq!(Descriptor::of_words(descriptor.to_words()), descriptor);
    }
}
