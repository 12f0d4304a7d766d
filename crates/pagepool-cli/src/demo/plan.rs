//! The actions of a demonstration, and the sizes of rings and pools in memory.

use clap::ValueEnum;
use pagepool::{ArenaParams, Holders, NodeId, NodePolicy, PAGE_SIZE, PoolParams};
use pagepool_net::{BUDGET, OpenParams};

use crate::traffic::sockets::memory_node;

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
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

const RING: usize = 512;
/// The most packets that wait for the thread that they are passed to.
pub const QUEUE: usize = 512;
/// The headroom of a driver that runs programs.
const HEADROOM: usize = 256;

/// How a page holds a packet.
struct PageLayout {
    page_size: usize,
    max_len: usize,
    tailroom: usize,
}

/// For packets of MTU 1500.
const USUAL: PageLayout = PageLayout { page_size: 2048, max_len: 1514, tailroom: 0 };
/// For longer packets, with the tailroom of drivers that take packets in several buffers.
const LONG: PageLayout =
    PageLayout { page_size: PAGE_SIZE, max_len: PAGE_SIZE - HEADROOM - 320, tailroom: 320 };
/// Idle pages in addition to those that the queues hold: the cache, and pages being returned.
const SPARE: usize = 256;

fn layout(packet: usize) -> PageLayout {
    if packet <= USUAL.max_len { USUAL } else { LONG }
}

/// The sizes for packets of one length.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub packet: usize,
    /// The most pages that can be out at once, of the pools of the first and second NIC.
    pub pages: [usize; 2],
    /// The NUMA node of the memory; `None` leaves it to the kernel.
    pub node: Option<NodeId>,
    /// What pools record about pages that are out.
    pub holders: Holders,
}

impl Sizes {
    /// The sizes for packets of this length. A pool has as many pages as rings, queues and bursts hold when
    /// all are full.
    ///
    /// Packets of the first NIC are on its receive ring, on a transmit ring, waiting for that (as many
    /// packets as it has slots), waiting for the other thread, or in bursts that threads work on. The second
    /// NIC only sends.
    pub fn new(packet: usize, holders: Holders) -> Self {
        let buffers = packet.div_ceil(layout(packet).max_len);
        let queued = RING + QUEUE + 4 * BUDGET;
        let pages = [2 * RING + buffers * queued + SPARE, RING + SPARE];
        Self { packet, pages, node: memory_node::choose([], &[]), holders }
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        layout(self.packet).page_size
    }

    /// The arena: the needs of both pools, and room for their last refill, in whole regions of 4 MiB.
    pub fn arena(&self) -> ArenaParams {
        let bytes = (self.pages.iter().sum::<usize>() + SPARE) * self.page_size();
        let region = 1 << pagepool::REGION_SHIFT;
        let max_bytes = bytes.next_multiple_of(region) as u64;
        let node = self.node.map_or(NodePolicy::Any, NodePolicy::Bind);
        let (name, page_size) = ("demo".into(), self.page_size());
        ArenaParams { name, max_bytes, page_size, node, ..ArenaParams::default() }
    }

    /// The parameters to open a NIC whose pool has this many pages.
    pub fn open_params(&self, pages: usize) -> OpenParams {
        let (rx_ring, tx_ring) = (RING as u32, RING as u32);
        OpenParams { rx_ring, tx_ring, multi_buffer: true, pool: self.pool(pages), ..OpenParams::default() }
    }

    /// A pool whose ring has room for all its idle pages, so that none leaves it.
    fn pool(&self, pages: usize) -> PoolParams {
        let PageLayout { max_len, tailroom, .. } = layout(self.packet);
        PoolParams {
            ring_size: pages,
            headroom: HEADROOM,
            max_len,
            tailroom,
            chains: 4 * RING + QUEUE,
            wakeup: true,
            nid: self.node,
            holders: self.holders,
            ..PoolParams::default()
        }
    }
}
