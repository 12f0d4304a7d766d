//! How large everything is that AF_XDP sockets on interfaces of one MTU need, and how they are called.

use std::time::Duration;

use pagepool::{
    ArenaParams, Backing, Holders, MAX_FRAGS, NodeId, NodePolicy, OnMissingHuge, PAGE_SIZE, PoolParams,
};
use pagepool_net::{AfXdpParams, BUDGET, OpenParams, UmemParams, XskMode};

/// What the kernel keeps free before a packet for XDP programs, and what drivers and newer kernels keep
/// behind it where a packet may go on in another buffer (`struct skb_shared_info`).
pub const HEADROOM: usize = 256;
const TAILROOM: usize = 320;
/// An Ethernet header with two VLAN tags.
pub const HEADERS: usize = 22;
/// Packets in one buffer each that are taken from a socket at once. Four times Linux's 64: what every burst
/// costs anew, code and tables that the last system call drove out of the CPU's caches, is shared by more
/// (docs/notes/0010).
const BURST: usize = 256;
/// Slots of a ring by default: fewer stay in the CPU's cache, more take a TCP window
/// (docs/notes/0010).
const RING: u32 = 1024;
/// With more queues of an interface than this, rings are by default half as long: the packets are spread over
/// them, and so is the memory.
const FEW_QUEUES: usize = 4;
/// Idle pages of a pool, at most.
const MOST_PAGES: usize = 16_384;
/// The order of pages that chunks are cut from: 128 of 2048 bytes in one, so that those of a burst are
/// counted together. A page returns with its last chunk. Rings are first in, first out, so few pages are in
/// part out.
const FRAG_ORDER: u8 = 6;
/// Pages for a chunk on a hardware ring with zero copy, where chunks are cut from pages. Not first in, first
/// out: a driver uses a buffer again at once whose packet goes to the kernel, and gives others back, so one
/// chunk keeps a page out for many rounds of the ring.
const PAGES_A_CARD_KEEPS: usize = 4;
/// Idle pages beside what the queues hold.
const SPARE: usize = 256;

/// What the sockets of a command are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketNeeds {
    /// Largest packet of the links without its Ethernet header.
    pub mtu: u32,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Chunks may begin anywhere in a page.
    pub unaligned: bool,
    /// Slots of each ring; without a number, as many as a pool can serve.
    pub ring: Option<u32>,
    /// Queues of an interface that are used.
    pub queues: usize,
    /// Bursts of a pool that are in hands at once: two of the loop, one of which is what it sends, and more
    /// where other threads have packets.
    pub bursts: usize,
    /// Slots of the hardware's receive rings, which buffers lie on with zero copy.
    pub hardware_ring: u32,
    /// Copy or zero copy.
    pub mode: XskMode,
    /// Use huge pages.
    pub hugepages: bool,
    /// The NUMA node of arena and pools; `None` leaves it to the kernel.
    pub node: Option<NodeId>,
    /// What pools record of pages that are out.
    pub holders: Holders,
}

impl SocketNeeds {
    /// Whether packets may have several buffers.
    fn multi_buffer(&self) -> bool {
        let one = (self.chunk as usize - HEADROOM).min(PAGE_SIZE - HEADROOM - TAILROOM);
        self.mtu as usize + HEADERS > one
    }
}

/// Sizes of rings and pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSizes {
    needs: SocketNeeds,
    /// Slots of each ring.
    pub ring: u32,
    /// Packets that are taken from a socket at once.
    pub burst: usize,
    /// Most base pages of each pool that can be out at once.
    pub pages: usize,
}

impl SocketSizes {
    /// For links of our own, in whole pages that are copied: the largest rings for which a pool can keep all
    /// its pages.
    pub fn of_mtu(mtu: u32) -> Self {
        let mode = XskMode::Copy; // no veth has another
        let needs = SocketNeeds { mtu, chunk: PAGE_SIZE as u32, mode, bursts: 4, ..SocketNeeds::default() };
        Self::fitting(needs, RING)
    }

    /// The sizes for these needs, or an error if a packet or a ring is too long.
    pub fn new(needs: SocketNeeds) -> Result<Self, String> {
        let SocketNeeds { mtu, chunk, ring, .. } = needs;
        let most = (MAX_FRAGS + 1) * (chunk as usize - HEADROOM) - HEADERS;
        if mtu as usize > most {
            let whole =
                if (chunk as usize) < PAGE_SIZE { "use --chunk-size 4096, or lower" } else { "lower" };
            return Err(format!(
                "MTU is {mtu}, but a packet has at most {} chunks of {chunk} bytes, enough for MTU {most}: \
                 {whole} the MTU",
                MAX_FRAGS + 1
            ));
        }
        let default = if needs.queues > FEW_QUEUES { RING / 2 } else { RING };
        let Some(ring) = ring else { return Ok(Self::fitting(needs, default)) };
        let sizes = Self::with_ring(needs, ring);
        if sizes.pages > MOST_PAGES {
            return Err(format!(
                "rings of {ring} slots need {} pages for MTU {mtu}, but a pool keeps at most {MOST_PAGES}: \
                 use at most --ring {}",
                sizes.pages,
                Self::fitting(needs, ring).ring
            ));
        }
        Ok(sizes)
    }

    /// With rings of this many slots, or fewer.
    fn fitting(needs: SocketNeeds, ring: u32) -> Self {
        let mut sizes = Self::with_ring(needs, ring);
        while sizes.pages > MOST_PAGES && sizes.ring > 2 {
            sizes = Self::with_ring(needs, sizes.ring / 2);
        }
        sizes
    }

    /// Most buffers of a packet.
    fn buffers(needs: SocketNeeds) -> usize {
        let room = needs.chunk as usize - HEADROOM - TAILROOM;
        match needs.multi_buffer() {
            true => (needs.mtu as usize + HEADERS).div_ceil(room).min(MAX_FRAGS + 1),
            false => 1,
        }
    }

    /// Packets lie on the receive ring, in the hardware's, or wait in the kernel for one, lie on another's
    /// transmit ring, wait for that (as many packets as it has slots), or are in the bursts of who works on
    /// them. A chunk counts as a page also where it is half of one: the other half is room for pages of which
    /// some chunks are still out.
    fn with_ring(needs: SocketNeeds, ring: u32) -> Self {
        let buffers = Self::buffers(needs);
        let mut sizes = Self { needs, ring, burst: BURST, pages: 0 };
        let kept = if sizes.in_frags() && needs.mode != XskMode::Copy { PAGES_A_CARD_KEEPS } else { 1 };
        let (slots, hardware) = (ring as usize, kept * needs.hardware_ring as usize);
        if sizes.multi_buffer() {
            sizes.burst = BUDGET;
        }
        let in_hands = buffers * (slots.max(sizes.burst) + needs.bursts * sizes.burst);
        sizes.pages = 2 * slots + hardware + in_hands + SPARE;
        sizes
    }

    /// The same, on a NUMA node.
    pub fn on(self, node: Option<NodeId>) -> Self {
        Self { needs: SocketNeeds { node, ..self.needs }, ..self }
    }

    /// The same, with pools that record this of pages that are out.
    pub fn recording(self, holders: Holders) -> Self {
        Self { needs: SocketNeeds { holders, ..self.needs }, ..self }
    }

    /// The NUMA node of arena and pools.
    pub fn node(&self) -> Option<NodeId> {
        self.needs.node
    }

    /// How long packets may lie on a receive ring unseen: if 1.6 million a second come, it is not full then,
    /// also if they are as long as the MTU.
    pub fn patience(&self) -> Duration {
        self.ring * Duration::from_nanos(600) / Self::buffers(self.needs) as u32
    }

    /// Bytes of a chunk.
    pub fn chunk(&self) -> u32 {
        self.needs.chunk
    }

    /// Whether packets may have several buffers: those that do not fit a chunk, or that drivers do not take
    /// into a page.
    pub fn multi_buffer(&self) -> bool {
        self.needs.multi_buffer()
    }

    /// Whether a buffer is a part of a page.
    pub fn in_frags(&self) -> bool {
        !self.needs.unaligned && (self.needs.chunk as usize) < PAGE_SIZE
    }

    /// The order of a pool's pages. A record of holders is of a page: the fewer chunks share it the better.
    fn order(&self) -> u8 {
        if self.in_frags() && self.needs.holders == Holders::Off { FRAG_ORDER } else { 0 }
    }

    /// The pages of a pool, of its order.
    pub fn pool_pages(&self) -> usize {
        self.pages >> self.order()
    }

    /// Most bytes of a packet in a chunk.
    pub fn room(&self) -> usize {
        self.needs.chunk as usize - HEADROOM
    }

    /// The memory of this number of pools, committed at once.
    pub fn arena(&self, name: &str, pools: usize) -> ArenaParams {
        let bytes = (pools * self.pages + SPARE) * PAGE_SIZE;
        let max_bytes = bytes.next_multiple_of(1 << pagepool::REGION_SHIFT) as u64;
        let mut arena = ArenaParams { name: name.into(), max_bytes, commit_all: true, ..Default::default() };
        if self.needs.hugepages {
            (arena.backing, arena.on_missing_huge) = (Backing::Huge2M, OnMissingHuge::Fail);
        }
        arena.node = self.needs.node.map_or(NodePolicy::Any, NodePolicy::Bind);
        arena
    }

    /// Huge pages that the arena needs, if it is made of huge pages.
    pub fn hugepages(&self, pools: usize) -> Option<u64> {
        self.needs.hugepages.then(|| self.arena("", pools).max_bytes >> 21)
    }

    /// How the sockets are opened, all over one UMEM with this name.
    pub fn open_params(&self, name: &str) -> OpenParams {
        let umem = UmemParams {
            name: name.into(),
            chunk_size: self.needs.chunk,
            unaligned: self.needs.unaligned,
            mode: self.needs.mode,
            ..UmemParams::default()
        };
        OpenParams {
            rx_ring: self.ring,
            tx_ring: self.ring,
            multi_buffer: self.multi_buffer(),
            pool: self.pool(),
            af_xdp: AfXdpParams { umem, ..AfXdpParams::default() },
            ..OpenParams::default()
        }
    }

    /// A pool in whose ring all its idle pages have a place, so that none leaves it. What a page has beyond a
    /// chunk is for colours; fragments have none, for they begin where chunks do.
    fn pool(&self) -> PoolParams {
        PoolParams {
            order: self.order(),
            ring_size: self.pages,
            headroom: HEADROOM,
            max_len: if self.needs.unaligned { self.needs.chunk as usize - HEADROOM } else { 0 },
            chains: if self.multi_buffer() { self.pages } else { 0 },
            wakeup: true,
            nid: self.needs.node,
            holders: self.needs.holders,
            ..PoolParams::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_all_pages_at_every_mtu() {
        for mtu in [576, 1500, 3498, 3499, 9000, 65_535] {
            let sizes = SocketSizes::of_mtu(mtu);
            assert!(
                sizes.pages <= MOST_PAGES && sizes.ring.is_power_of_two() && sizes.ring >= 256,
                "{sizes:?}"
            );
            assert_eq!(sizes.multi_buffer(), mtu > 3498, "{sizes:?}");
        }
        assert_eq!(SocketSizes::of_mtu(1500).ring, RING);
    }

    #[test]
    fn a_ring_of_long_packets_is_full_sooner() {
        let patience = |mtu| SocketSizes::of_mtu(mtu).patience() / SocketSizes::of_mtu(mtu).ring;
        let [one, three] = [1500, 9000].map(patience);
        assert_eq!((one, three), (Duration::from_nanos(600), Duration::from_nanos(200)));
    }

    #[test]
    fn arena_and_pools_are_on_one_node() {
        let sizes = SocketSizes::of_mtu(1500).on(Some(NodeId(1)));
        assert_eq!(sizes.arena("", 1).node, NodePolicy::Bind(NodeId(1)));
        assert_eq!(sizes.open_params("").pool.nid, Some(NodeId(1)));
        let anywhere = sizes.on(None);
        assert_eq!((anywhere.arena("", 1).node, anywhere.pool().nid), (NodePolicy::Any, None));
    }

    #[test]
    fn half_pages_hold_what_they_can() {
        let halves = |mtu| SocketNeeds { mtu, chunk: 2048, ..SocketSizes::of_mtu(mtu).needs };
        for (mtu, several) in [(1500, false), (1770, false), (1771, true), (9000, true)] {
            let sizes = SocketSizes::new(halves(mtu)).unwrap();
            assert_eq!((sizes.multi_buffer(), sizes.in_frags()), (several, true), "{mtu}");
            assert_eq!(sizes.burst, if several { BUDGET } else { BURST }, "{mtu}");
            let at_once = sizes.pages.div_ceil((PAGE_SIZE << FRAG_ORDER) / 2048);
            assert!(sizes.pool_pages() + 2 >= 2 * at_once, "{mtu}: {at_once} pages full of chunks");
        }
        let error = SocketSizes::new(halves(65_535)).unwrap_err();
        assert!(error.contains("MTU 32234") && error.contains("--chunk-size 4096"), "{error}");
    }

    #[test]
    fn chunks_that_a_card_keeps_have_more_pages() {
        let of = |mode, chunk| {
            let needs = SocketNeeds { mode, chunk, hardware_ring: 2048, ..SocketSizes::of_mtu(1500).needs };
            SocketSizes::new(needs).unwrap().pages
        };
        assert_eq!(of(XskMode::Copy, 2048), of(XskMode::Copy, 4096));
        assert_eq!(of(XskMode::ZeroCopy, 2048), of(XskMode::ZeroCopy, 4096) + 3 * 2048);
    }

    #[test]
    fn a_pair_of_many_queues_takes_at_most_20_mib() {
        let needs = |queues| SocketNeeds { queues, bursts: 2, ..SocketSizes::of_mtu(1500).needs };
        let [few, many] = [4, 5].map(|queues| SocketSizes::new(needs(queues)).unwrap());
        assert_eq!((few.ring, many.ring), (1024, 512));
        assert_eq!(many.arena("", 2).max_bytes, 20 << 20);
    }

    #[test]
    fn rings_that_are_too_large_are_refused_with_the_largest() {
        let needs = SocketNeeds { ring: Some(16_384), ..SocketSizes::of_mtu(9000).needs };
        let error = SocketSizes::new(needs).unwrap_err();
        assert!(error.contains("at most 16384") && error.contains("at most --ring 2048"), "{error}");
        let small = SocketSizes::new(SocketNeeds { ring: Some(64), ..needs }).unwrap();
        assert_eq!(small.ring, 64);
    }
}
