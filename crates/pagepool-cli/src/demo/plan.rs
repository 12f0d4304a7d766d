//! Actions of a demonstration, and the sizes of rings and pools in memory.

use clap::ValueEnum;
use pagepool::{ArenaParams, Holders, NodeId, NodePolicy, PAGE_SIZE, PoolParams};
use pagepool_net::{BUDGET, OpenParams};

use crate::engine::memory_node;

/// What the forwarding thread does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoAction {
    /// Drop the packet
    Drop,
    /// Swap the MAC addresses, and send the packet back out of its NIC
    Echo,
    /// Send the packet out of the other NIC, without a copy
    Forward,
    /// Pass the packet to another thread, which reads and drops it
    Pass,
}

impl DemoAction {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Shortest and longest packet, without the frame check sequence. 64 is what small packets are measured with.
const SHORTEST: usize = 64;
const LONGEST: usize = 9000;

/// Reads `--size`.
pub fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (SHORTEST..=LONGEST).contains(size));
    size.ok_or_else(|| {
        format!("a packet has {SHORTEST} to {LONGEST} bytes; common sizes are 64, 1500 and 9000")
    })
}

/// Largest packet of a link without its Ethernet header: at least what every IPv4 host takes, at most what
/// IPv4 has.
const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;

/// Reads `--mtu`.
pub fn mtu(text: &str) -> Result<u32, String> {
    let mtu = text.parse().ok().filter(|mtu| MTUS.contains(mtu));
    mtu.ok_or_else(|| {
        format!("the MTU is {} to {} bytes; common values are 1500 and 9000", MTUS.start(), MTUS.end())
    })
}

/// Slots of each ring of the NICs.
const RING: usize = 512;
/// Packets that wait for the thread that they are passed to.
pub const QUEUE: usize = 512;
/// Headroom and tailroom of a driver that runs programs, and what they leave of a page.
const HEADROOM: usize = 256;
const TAILROOM: usize = 320;
const ROOM: usize = PAGE_SIZE - HEADROOM - TAILROOM;
/// Bytes of packet in a page, if no packet is longer.
const USUAL: usize = 1514;
/// Idle pages beside what the queues hold: the cache, and what is on its way.
const SPARE: usize = 256;

/// The sizes for packets of one length.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of a packet.
    pub packet: usize,
    /// Most pages of the first NIC's pool that can be out at once, and of the second one's.
    pub pages: [usize; 2],
    /// The NUMA node of all of it; `None` leaves it to the kernel.
    pub node: Option<NodeId>,
    /// What pools record of pages that are out.
    pub holders: Holders,
}

impl Sizes {
    /// A pool has as many pages as rings, queues and bursts can hold when all are full.
    ///
    /// The first NIC's packets lie on its receive ring, on a transmit ring, wait for that (as many packets as
    /// it has slots), wait for the other thread, or are in the bursts of all who work on them. The second NIC
    /// only sends.
    pub fn of(packet: usize, holders: Holders) -> Self {
        let buffers = packet.div_ceil(Self::capacity(packet));
        let queued = RING + QUEUE + 4 * BUDGET;
        let pages = [2 * RING + buffers * queued + SPARE, RING + SPARE];
        Self { packet, pages, node: memory_node::home([], &[]), holders }
    }

    /// Bytes of packet in a page.
    fn capacity(packet: usize) -> usize {
        if packet <= USUAL { USUAL } else { ROOM }
    }

    /// The arena: what both pools need, and room for their last refill, in whole regions of 4 MiB.
    pub fn arena(&self) -> ArenaParams {
        let bytes = (self.pages.iter().sum::<usize>() + SPARE) * PAGE_SIZE;
        let region = 1 << pagepool::REGION_SHIFT;
        let max_bytes = bytes.next_multiple_of(region) as u64;
        let node = self.node.map_or(NodePolicy::Any, NodePolicy::Bind);
        ArenaParams { name: "demo".into(), max_bytes, node, ..ArenaParams::default() }
    }

    /// How a NIC is opened whose pool has so many pages.
    pub fn open_params(&self, pages: usize) -> OpenParams {
        let (rx_ring, tx_ring) = (RING as u32, RING as u32);
        OpenParams { rx_ring, tx_ring, multi_buffer: true, pool: self.pool(pages), ..OpenParams::default() }
    }

    /// A pool in whose ring all its idle pages have a place, so that none leaves it.
    fn pool(&self, pages: usize) -> PoolParams {
        PoolParams {
            ring_size: pages,
            headroom: HEADROOM,
            max_len: Self::capacity(self.packet),
            tailroom: TAILROOM,
            chains: 4 * RING + QUEUE,
            wakeup: true,
            nid: self.node,
            holders: self.holders,
            ..PoolParams::default()
        }
    }
}
