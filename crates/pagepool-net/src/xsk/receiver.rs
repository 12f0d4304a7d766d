//! The receiving half: gives the kernel buffers on the fill ring, and makes packets of what arrives.
//!
//! Table  holds every page that the kernel was given, by its number, until it returns with a packet. So
//!        nothing that the kernel keeps or silently discards is lost: at the end all is taken back, whatever
//!        the rings say.
//! Trust  none. An address that was not given is counted and never accessed. A length beyond the buffer is
//!        counted, and the buffer returns to its pool. If one buffer of a packet is wrong, the packet is
//!        dropped up to its end.
//! Rule   as many buffers are out as the receive ring and the driver's ring have slots. The fill ring has
//!        room for twice that, so its stale index delays none.
//! I4     a buffer is in the table, where no thread can access its bytes, from before its address is on the
//!        fill ring until that address returns on the receive ring, or the socket is closed.

use pagepool::{Batch, Bound, DeviceTable, XdpBuff};

use super::descriptor::Descriptor;
use super::layout::Layout;
use super::sys::ring::{Consumer, Producer};
use super::sys::socket::{CONTINUED, Mapped};
use crate::device::DeviceStats;
use crate::device::mapping_cache::MappingCache;
use crate::device::rx_chain::RxChain;

/// Descriptors per look.
const BURST: usize = 64;
/// In unaligned mode, address bits of the chunk's start. Above them is the packet's offset from it.
const BASE_BITS: u32 = 48;

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
    /// The kernel's pages.
    given: DeviceTable,
    /// Number of buffers for the kernel.
    most: usize,
    chain: RxChain,
    /// The kernel may write to these buffers forever.
    leaked: usize,
}

impl Receiver {
    pub(super) fn new(layout: Layout, most: usize, max_buffers: usize) -> Self {
        let given = DeviceTable::new(layout.pages());
        Self { layout, given, most, chain: RxChain::new(max_buffers), leaked: 0 }
    }

    /// Moves packets into the vector, within its capacity and the budget.
    #[inline]
    pub(super) fn receive(
        &mut self,
        rings: &mut RxRings,
        into: &mut Vec<XdpBuff>,
        budget: usize,
        stats: &mut DeviceStats,
    ) -> usize {
        let ring = &mut rings.received;
        let most = budget.min(into.capacity() - into.len());
        let before = into.len();
        while into.len() - before < most {
            // Every descriptor that is read becomes a packet or is dropped, so no more than the vector has
            // room for.
            let got = ring.peek(BURST.min(most - (into.len() - before)));
            if got == 0 {
                break;
            }
            // The kernel wrote these lines on another CPU: fetched together, the misses overlap.
            ring.prefetch(got);
            rings.fill.prefetch(into.len() - before, got); // for the buffers that replace them
            self.accept(got, ring.read(got), into, stats);
            // After the last read: the kernel may now write these slots again.
            ring.release();
        }
        let n = into.len() - before;
        stats.rx_packets += n as u64;
        n
    }

    /// Takes returned buffers; `into` has room for as many packets. A fast path takes packets of one chunk
    /// each, and writes each once, in its final place.
    #[inline(always)]
    fn accept(
        &mut self,
        n: usize,
        entry: impl Fn(usize) -> [u64; 2] + Copy,
        into: &mut Vec<XdpBuff>,
        stats: &mut DeviceStats,
    ) {
        let (mut at, mut bytes) = (0, 0);
        while at < n {
            // The fast path knows no unfinished packets: within one, buffers are checked singly.
            if self.chain.is_between_packets() {
                let rest = move |next| entry(at + next);
                let (whole, bytes_of_whole) = self.take_whole(n - at, rest, into);
                (at, bytes) = (at + whole, bytes + bytes_of_whole);
                if at == n {
                    break;
                }
            }
            let rest = move |next| entry(at + next);
            let (pages, bytes_of_packets) = self.take_chained(n - at, rest, into);
            (at, bytes) = (at + pages, bytes + bytes_of_packets);
            if at == n {
                break;
            }
            if let Some(packet) = self.accept_one(Descriptor::of_words(entry(at)), stats) {
                bytes += packet.len() as u64;
                into.push(packet);
            }
            at += 1;
        }
        stats.rx_bytes += bytes;
    }

    /// Takes packets of one page each at the front of a burst. Returns how many, and their bytes. Not
    /// inlined, so that its loop has all registers.
    #[inline(never)]
    fn take_whole(
        &mut self,
        n: usize,
        entry: impl Fn(usize) -> [u64; 2],
        into: &mut Vec<XdpBuff>,
    ) -> (usize, u64) {
        let whole = move |at: usize| {
            let Descriptor { addr, len, options } = Descriptor::of_words(entry(at));
            (options == 0).then_some((addr, len)) // any other option is checked singly
        };
        // Two loops: the one for aligned chunks tests no mode per packet.
        match self.layout.unaligned {
            true => {
                let whole = move |at| whole(at).map(|(addr, len)| (flat(addr), len));
                self.given.remove_packets(n, whole, into)
            }
            false => self.given.remove_packets(n, whole, into),
        }
    }

    /// Takes packets of one or several pages at the front of a burst, which may have begun in an earlier one.
    /// Returns how many pages, and the packets' bytes; none where packets have one page each.
    #[inline(never)]
    fn take_chained(
        &mut self,
        n: usize,
        entry: impl Fn(usize) -> [u64; 2],
        into: &mut Vec<XdpBuff>,
    ) -> (usize, u64) {
        let Some((begun, max_buffers)) = self.chain.begun() else { return (0, 0) };
        let unaligned = self.layout.unaligned;
        let named = move |at: usize| {
            let Descriptor { addr, len, options } = Descriptor::of_words(entry(at));
            let addr = if unaligned { flat(addr) } else { addr };
            (options & !CONTINUED == 0).then_some((addr, len, options & CONTINUED != 0))
        };
        self.given.remove_chained(n, named, max_buffers, begun, into)
    }

    /// Takes any other buffer. Returns the packet that ends with it.
    #[inline(never)]
    fn accept_one(&mut self, got: Descriptor, stats: &mut DeviceStats) -> Option<XdpBuff> {
        let (len, last) = (got.len as usize, got.options & CONTINUED == 0);
        let addr = if self.layout.unaligned { flat(got.addr) } else { got.addr };
        // The address is the packet's: the offset includes the kernel's room before it.
        let offset = (addr & ((1 << self.layout.page_shift) - 1)) as usize;
        // Removing is the check: an address that comes twice finds nothing the second time (I1).
        let Some(buffer) = self.layout.page_at(addr).and_then(|page| self.given.remove(page)) else {
            stats.rx_bad_descriptor += 1;
            return self.chain.spoilt(last);
        };
        if last && self.chain.is_between_packets() && len > 0 {
            return XdpBuff::new(buffer, offset, len).map_err(|_| stats.rx_bad_length += 1).ok();
        }
        self.chain.append(buffer, offset, len, last, stats)
    }

    /// Gives the kernel buffers until it has `most`.
    #[inline]
    pub(super) fn refill(
        &mut self,
        rings: &mut RxRings,
        pool: &Bound,
        mapping: &mut MappingCache,
        stats: &mut DeviceStats,
    ) {
        let want = self.most.saturating_sub(self.held());
        // An idle round ends here, and touches no cache line of the kernel's CPU.
        if want == 0 {
            return;
        }
        let fill = &mut rings.fill;
        // The fill ring may have less room: the kernel takes some buffers off later.
        let want = want.min(fill.room(want));
        let unmapped = self.give_many(fill, want, pool, mapping);
        stats.rx_unmapped += unmapped as u64;
        // Once for all: each submit takes the ring's index line from the kernel's CPU.
        fill.submit();
    }

    /// Returns how many pages are of a pool outside this UMEM. An empty pool records that its owner waits;
    /// the next return wakes it.
    #[inline(always)]
    fn give_many(
        &mut self,
        fill: &mut Fill,
        mut want: usize,
        pool: &Bound,
        mapping: &mut MappingCache,
    ) -> usize {
        while want > 0 {
            let wanted = want.min(Batch::MAX);
            let batch = pool.alloc_batch(wanted);
            let got = batch.len();
            if let Err(unmapped) = self.give_pages(fill, batch, mapping) {
                return unmapped.len(); // they return
            }
            if got < wanted {
                return 0;
            }
            want -= got;
        }
        0
    }

    /// Gives pages to the kernel, if they are in the UMEM, where a device address is the offset in the area.
    #[inline(always)]
    #[expect(clippy::result_large_err, reason = "returns the batch unchanged")]
    fn give_pages(
        &mut self,
        fill: &mut Fill,
        mut batch: Batch,
        mapping: &mut MappingCache,
    ) -> Result<(), Batch> {
        let layout = self.layout;
        let Some(one) = batch.pop() else { return Ok(()) };
        // One check for the batch: all pages are of one pool, and thus of one area.
        let mapped = mapping.addr_of(&one).is_some_and(|at| layout.page_at(at.0) == Some(one.page()));
        if batch.push(one).is_err() || !mapped {
            return Err(batch);
        }
        let mut slots = fill.slots();
        // Table entries first, then the index: an address is in the table before the kernel sees it (I4).
        let done = match layout.unaligned {
            true => self.given.insert(batch, |page, offset| {
                slots.push([layout.start_of(page) + layout.colour(offset)]);
            }),
            false => self.given.insert(batch, |page, _| slots.push([layout.start_of(page)])),
        };
        // Even after an error: what is in the table is on the ring.
        slots.commit();
        done
    }

    /// Buffers that the kernel has, that wait for the rest of their packet, or that are leaked.
    pub(super) fn held(&self) -> usize {
        self.given.len() + self.chain.held() + self.leaked
    }

    /// Leaks the kernel's buffers, which stay counted.
    pub(super) fn forget(&mut self) {
        // Memory that the kernel may still write must not be allocated again.
        self.leaked += self.given.forget();
    }

    /// Takes everything back after the close. Returns how many buffers there were.
    pub(super) fn clear(&mut self) -> usize {
        let held = self.held();
        self.chain.clear();
        self.given.clear();
        held
    }
}

/// Where an unaligned-mode address is in the UMEM.
#[inline(always)]
fn flat(addr: u64) -> u64 {
    (addr & ((1 << BASE_BITS) - 1)) + (addr >> BASE_BITS)
}

impl Layout {
    /// How far into its page a chunk begins: where the pool would put the packet, as long as the chunk stays
    /// in the page. Otherwise Linux silently discards the address, unless the next page is also next in
    /// memory.
    #[inline]
    fn colour(&self, packet_offset: usize) -> u64 {
        let most = (1u64 << self.page_shift) - u64::from(self.chunk);
        (packet_offset as u64).saturating_sub(u64::from(self.before)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use pagepool::{Arena, ArenaParams, Pool, PoolParams};

    use super::*;

    impl Receiver {
        pub(in crate::xsk) fn give(
            &mut self,
            fill: &mut Fill,
            pool: &Bound,
            mapping: &mut MappingCache,
        ) -> bool {
            self.give_pages(fill, pool.alloc_batch(1), mapping).is_ok()
        }
    }

    #[test]
    fn a_coloured_chunk_stays_in_its_page() {
        let layout = Layout { chunk: 3136, before: 256, unaligned: true, page_shift: 12, len: 1 << 20 };
        assert_eq!((layout.colour(0), layout.colour(256), layout.colour(320)), (0, 0, 64));
        assert_eq!(layout.colour(256 + 960), 960, "the last colour that fits");
        assert_eq!(layout.colour(4095), 960, "not past the page");
    }

    const PAGES: usize = 64;

    /// A receiver without a kernel, a pool, and the addresses of all buffers.
    fn bench(unaligned: bool) -> (Receiver, Bound, Vec<u64>) {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let params = PoolParams { tailroom: 320, chains: 8, colour: false, ..Default::default() };
        let pool = Pool::new(params, arena).unwrap().bind();
        let chunk = if unaligned { 3136 } else { 4096 };
        let layout = Layout { chunk, before: 256, unaligned, page_shift: 12, len: 1 << 20 };
        let mut receiver = Receiver::new(layout, PAGES, 4);
        let addrs = give(&mut receiver, &pool);
        (receiver, pool, addrs)
    }

    /// Gives as many pages as it may have. Returns their places.
    fn give(receiver: &mut Receiver, pool: &Bound) -> Vec<u64> {
        let (mut addrs, want) = (Vec::new(), PAGES - receiver.held());
        let layout = receiver.layout;
        let given = &mut receiver.given;
        given.insert(pool.alloc_batch(want), |page, _| addrs.push(layout.start_of(page))).expect("one area");
        addrs
    }

    fn entry(addr: u64, len: u32, options: u32) -> [u64; 2] {
        Descriptor { addr, len, options }.to_words()
    }

    #[test]
    fn parts_after_a_bad_descriptor_are_dropped_with_its_packet() {
        let (mut receiver, pool, at) = bench(false);
        let (mut packets, mut stats) = (Vec::with_capacity(PAGES), DeviceStats::default());
        let burst = [
            entry(at[0], 100, CONTINUED),
            entry(at[1] + 4000, 100, CONTINUED), // beyond its page
            entry(at[2], 100, CONTINUED),
            entry(at[3], 100, 0),
            entry(at[4] + 256, 60, 0),
            entry(at[5], 100, CONTINUED),
            entry(at[6], 60, 0),
            entry(at[4] + 256, 60, 0), // it was named before
            entry(at[7] + 256, 0, 0),
            entry(at[8] + 256, 4096 - 256, 0), // into the tailroom
            entry(1 << 60, 60, CONTINUED),
            entry(at[9], 60, 0),
            entry(at[10] + 256, 70, 0),
        ];
        receiver.accept(burst.len(), |at| burst[at], &mut packets, &mut stats);
        let lens: Vec<_> = packets.iter().map(|packet| (packet.len(), packet.frags().len())).collect();
        assert_eq!(lens, [(60, 0), (160, 1), (70, 0)]);
        assert_eq!((stats.rx_bad_length, stats.rx_bad_descriptor, stats.rx_bytes), (3, 2, 290));
        assert_eq!((receiver.held(), pool.inflight().out), (PAGES - 11, PAGES as u64 - 11 + 4));
    }

    #[test]
    fn hostile_descriptors_lose_nothing_and_reach_nothing() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for round in 0..if cfg!(miri) { 4 } else { 400 } {
            let (mut receiver, pool, mut given) = bench(round % 2 == 1);
            let (mut stats, mut bytes) = (DeviceStats::default(), 0);
            for _ in 0..8 {
                let mut burst = [[0; 2]; BURST];
                for words in &mut burst {
                    let known = given.get(random(PAGES as u64) as usize).copied().unwrap_or(0);
                    let addr = match random(8) {
                        0 => random(1 << 31) << random(34),
                        1 => known + random(1 << 14) + (random(1 << 16) << BASE_BITS),
                        _ => known + random(4096),
                    };
                    let len = [0, 60, 1514, 3136, 4096, u32::MAX, random(1 << 31) as u32][random(7) as usize];
                    *words = entry(addr, len, [0, 0, CONTINUED, random(1 << 31) as u32][random(4) as usize]);
                }
                let mut packets = Vec::with_capacity(BURST);
                // A kernel that changes its descriptors at every other look.
                let looks = std::cell::Cell::new(0);
                let changing = |at: usize| {
                    looks.set(looks.get() + 1);
                    burst[if round % 4 > 1 && looks.get() % 2 == 0 { BURST - 1 - at } else { at }]
                };
                receiver.accept(BURST, changing, &mut packets, &mut stats);
                let ends = packets.iter().map(|packet| packet.offset() + packet.data().len());
                assert!(ends.max().is_none_or(|end| end <= 4096 - 320), "round {round}");
                bytes += packets.iter().map(|packet| packet.len() as u64).sum::<u64>();
                let buffers: usize = packets.iter().map(|packet| 1 + packet.frags().len()).sum();
                assert_eq!(pool.inflight().out as usize, receiver.held() + buffers, "round {round}");
                given.extend(give(&mut receiver, &pool));
            }
            assert_eq!(stats.rx_bytes, bytes, "round {round}");
            receiver.clear();
            assert_eq!(pool.inflight().out, 0, "round {round}");
        }
    }

    #[test]
    fn a_descriptor_is_two_words() {
        let descriptor = Descriptor { addr: 77, len: 60, options: 1 };
        assert_eq!(Descriptor::of_words(descriptor.to_words()), descriptor);
    }
}
