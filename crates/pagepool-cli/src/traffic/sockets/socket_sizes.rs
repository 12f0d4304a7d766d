//! The sizes of everything that AF_XDP sockets on interfaces with one MTU need, and their names.

use std::time::Duration;

use pagepool::{
    ArenaParams, Backing, Holders, MAX_FRAGS, NodeId, NodePolicy, OnMissingHuge, PAGE_SIZE, PoolParams,
};
use pagepool_net::{AfXdpParams, BUDGET, OpenParams, UmemParams, XskMode};

/// What the kernel keeps free before a packet for XDP programs; and what drivers and newer kernels keep free
/// behind it if a packet may continue in another buffer (`struct skb_shared_info`).
pub const HEADROOM: usize = 256;
const TAILROOM: usize = 320;
/// An Ethernet header with two VLAN tags.
pub const HEADERS: usize = 22;
/// The most packets of one buffer each that are taken from a socket at once. Linux takes 64. More packets
/// share what each burst costs anew: code and tables that the last system call drove out of the CPU's caches
/// (docs/notes/0010).
const BURST: usize = 256;
/// The default number of slots of a ring: fewer stay in the CPU's cache, more take a TCP window
/// (docs/notes/0010).
const RING: u32 = 1024;
/// With more queues per interface than this, rings are by default half as long: packets and memory are spread
/// over the queues.
const FEW_QUEUES: usize = 4;
/// The most idle pages of a pool.
const MOST_PAGES: usize = 16_384;
/// A chunk for packets of MTU 1500, and one for longer packets.
pub const CHUNKS: [u32; 2] = [2048, PAGE_SIZE as u32];
/// Idle pages in addition to those that the queues hold.
const SPARE: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketNeeds {
    /// The largest packet of the links, without its Ethernet header.
    pub mtu: u32,
    pub chunk: u32,
    /// Chunks may begin anywhere in a page.
    pub unaligned: bool,
    /// Slots of each ring; `None`: as many as a pool can serve.
    pub ring: Option<u32>,
    /// The number of queues used of an interface.
    pub queues: usize,
    /// Bursts of a pool in use at once: two of the loop, one of which it sends, and more if other threads
    /// have packets.
    pub bursts: usize,
    /// Slots of the hardware's receive rings, which hold buffers with zero copy.
    pub hardware_ring: u32,
    pub mode: XskMode,
    pub hugepages: bool,
    /// Another process maps the memory.
    pub memfd: bool,
    /// The NUMA node of arena and pools; `None` leaves it to the kernel.
    pub node: Option<NodeId>,
    /// What pools record about pages that are out.
    pub holders: Holders,
}

impl SocketNeeds {
    /// Whether packets may have several buffers: if they do not fit a chunk, or drivers do not take them into
    /// one page.
    pub fn multi_buffer(&self) -> bool {
        !fits(self.mtu, self.chunk)
    }
}

/// Whether a chunk of this size holds every packet of links with this MTU.
pub fn fits(mtu: u32, chunk: u32) -> bool {
    let one = (chunk as usize - HEADROOM).min(PAGE_SIZE - HEADROOM - TAILROOM);
    mtu as usize + HEADERS <= one
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSizes {
    pub needs: SocketNeeds,
    pub ring: u32,
    /// The most packets taken from a socket at once.
    pub burst: usize,
    /// The most base pages of each pool that can be out at once.
    pub pages: usize,
}

impl SocketSizes {
    /// Sizes for our own links, which are copied: the largest rings for which a pool can keep all its pages.
    pub fn of_mtu(mtu: u32) -> Self {
        let [chunk, long] = CHUNKS;
        let chunk = if fits(mtu, chunk) { chunk } else { long };
        let mode = XskMode::Copy; // veth has no other mode
        let needs = SocketNeeds { mtu, chunk, mode, bursts: 4, ..SocketNeeds::default() };
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

    /// Sizes with rings of this many slots, or fewer if a pool cannot serve them.
    fn fitting(needs: SocketNeeds, ring: u32) -> Self {
        let mut sizes = Self::with_ring(needs, ring);
        while sizes.pages > MOST_PAGES && sizes.ring > 2 {
            sizes = Self::with_ring(needs, sizes.ring / 2);
        }
        sizes
    }

    /// The most buffers of a packet.
    fn buffers(needs: SocketNeeds) -> usize {
        let room = needs.chunk as usize - HEADROOM - TAILROOM;
        match needs.multi_buffer() {
            true => (needs.mtu as usize + HEADERS).div_ceil(room).min(MAX_FRAGS + 1),
            false => 1,
        }
    }

    /// Sizes with rings of this many slots. Packets are on the receive ring, in the hardware's ring, waiting
    /// in the kernel for a buffer, on another port's transmit ring, waiting for it (as many packets as it has
    /// slots), or in bursts that threads work on.
    fn with_ring(needs: SocketNeeds, ring: u32) -> Self {
        let buffers = Self::buffers(needs);
        let burst = if needs.multi_buffer() { BUDGET } else { BURST };
        let mut sizes = Self { needs, ring, burst, pages: 0 };
        let (slots, hardware) = (ring as usize, needs.hardware_ring as usize);
        let in_hands = buffers * (slots.max(burst) + needs.bursts * burst);
        sizes.pages = 2 * slots + hardware + in_hands + SPARE;
        sizes
    }

    /// How long packets may stay on a receive ring unseen: at 1.6 million packets a second of the MTU's
    /// length, the ring is not full by then.
    pub fn patience(&self) -> Duration {
        self.ring * Duration::from_nanos(600) / Self::buffers(self.needs) as u32
    }

    /// Bytes of a page: a chunk, unless chunks begin anywhere in their page.
    pub fn page_size(&self) -> usize {
        if self.needs.unaligned { PAGE_SIZE } else { self.needs.chunk as usize }
    }

    /// The most bytes of a packet in a chunk.
    pub fn room(&self) -> usize {
        self.needs.chunk as usize - HEADROOM
    }

    /// The memory for this many pools, committed at once.
    pub fn arena(&self, name: &str, pools: usize) -> ArenaParams {
        let bytes = (pools * self.pages + SPARE) * self.page_size();
        let max_bytes = bytes.next_multiple_of(1 << pagepool::REGION_SHIFT) as u64;
        let (name, page_size) = (name.into(), self.page_size());
        let mut arena = ArenaParams { name, max_bytes, page_size, commit_all: true, ..Default::default() };
        let huge = self.needs.hugepages;
        match (self.needs.memfd, huge) {
            (true, _) => arena.backing = Backing::Memfd { huge },
            (false, true) => arena.backing = Backing::Huge2M,
            (false, false) => {}
        }
        if huge {
            arena.on_missing_huge = OnMissingHuge::Fail;
        }
        arena.node = self.needs.node.map_or(NodePolicy::Any, NodePolicy::Bind);
        arena
    }

    /// The number of huge pages of the arena, if it uses them.
    pub fn hugepages(&self, pools: usize) -> Option<u64> {
        self.needs.hugepages.then(|| self.arena("", pools).max_bytes >> 21)
    }

    /// All sockets share one UMEM with this name.
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
            multi_buffer: self.needs.multi_buffer(),
            offloads: false,
            pool: self.pool(),
            af_xdp: AfXdpParams { umem, ..AfXdpParams::default() },
            taps: Vec::new(),
        }
    }

    /// A pool whose ring has room for all its idle pages, so that none leaves it. The space of a page beyond
    /// a chunk is for colours.
    fn pool(&self) -> PoolParams {
        PoolParams {
            ring_size: self.pages,
            headroom: HEADROOM,
            max_len: if self.needs.unaligned { self.needs.chunk as usize - HEADROOM } else { 0 },
            chains: if self.needs.multi_buffer() { self.pages } else { 0 },
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
            assert_eq!(sizes.needs.multi_buffer(), mtu > 3498, "{sizes:?}");
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
        let mut sizes = SocketSizes::of_mtu(1500);
        sizes.needs.node = Some(NodeId(1));
        assert_eq!(sizes.arena("", 1).node, NodePolicy::Bind(NodeId(1)));
        assert_eq!(sizes.open_params("").pool.nid, Some(NodeId(1)));
        sizes.needs.node = None;
        assert_eq!((sizes.arena("", 1).node, sizes.pool().nid), (NodePolicy::Any, None));
    }

    #[test]
    fn memory_of_another_process_is_a_file() {
        let backing = |memfd, hugepages| {
            let mut sizes = SocketSizes::of_mtu(1500);
            (sizes.needs.memfd, sizes.needs.hugepages) = (memfd, hugepages);
            sizes.arena("", 1).backing
        };
        assert_eq!((backing(false, false), backing(false, true)), (Backing::default(), Backing::Huge2M));
        assert_eq!(backing(true, false), Backing::Memfd { huge: false });
        assert_eq!(backing(true, true), Backing::Memfd { huge: true });
    }

    #[test]
    fn small_chunks_hold_what_they_can() {
        let small = |mtu| SocketNeeds { mtu, chunk: 2048, ..SocketSizes::of_mtu(mtu).needs };
        for (mtu, several) in [(1500, false), (1770, false), (1771, true), (9000, true)] {
            let sizes = SocketSizes::new(small(mtu)).unwrap();
            assert_eq!((sizes.needs.multi_buffer(), sizes.page_size()), (several, 2048), "{mtu}");
            assert_eq!(sizes.burst, if several { BUDGET } else { BURST }, "{mtu}");
            assert_eq!(SocketSizes::of_mtu(mtu).page_size(), if several { 4096 } else { 2048 }, "{mtu}");
        }
        let error = SocketSizes::new(small(65_535)).unwrap_err();
        assert!(error.contains("MTU 32234") && error.contains("--chunk-size 4096"), "{error}");
    }

    #[test]
    fn a_pair_of_many_queues_takes_at_most_12_mib() {
        let needs = |queues| SocketNeeds { queues, bursts: 2, ..SocketSizes::of_mtu(1500).needs };
        let [few, many] = [4, 5].map(|queues| SocketSizes::new(needs(queues)).unwrap());
        assert_eq!((few.ring, many.ring), (1024, 512));
        assert_eq!(many.arena("", 2).max_bytes, 12 << 20);
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
