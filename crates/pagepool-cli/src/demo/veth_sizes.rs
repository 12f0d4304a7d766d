//! How large everything is that a demonstration over veth needs.

use pagepool::{ArenaParams, PAGE_SIZE, PoolParams};
use pagepool_net::{BUDGET, UmemParams, XskMode, XskParams};

/// What the kernel keeps free before a packet for XDP programs, and what it leaves of a chunk that is a page.
const HEADROOM: usize = 256;
const ROOM: usize = PAGE_SIZE - HEADROOM;
/// An Ethernet header with a VLAN tag.
const HEADERS: usize = 18;
/// Longest packet in one buffer: veth takes no more into a page, where it needs 320 bytes of its own.
const ONE_BUFFER: usize = ROOM - 320 - HEADERS;
/// Slots of a ring, and idle pages of a pool, at most.
const RING: usize = 2048;
const MOST_PAGES: usize = 16_384;
/// Idle pages beside what the queues hold.
const SPARE: usize = 256;

/// The sizes for links of one MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VethSizes {
    mtu: usize,
    /// Slots of each ring.
    ring: usize,
    /// Most pages of each pool that can be out at once.
    pub pages: usize,
}

impl VethSizes {
    /// The largest rings for which a pool can keep all its pages.
    pub fn of(mtu: u32) -> Self {
        let mtu = mtu as usize;
        let sized = |ring| Self { mtu, ring, pages: Self::pages(mtu, ring) };
        let mut sizes = sized(RING);
        while sizes.pages > MOST_PAGES {
            sizes = sized(sizes.ring / 2);
        }
        sizes
    }

    /// Packets lie on the receive ring or wait in the kernel for one, lie on the other's transmit ring, wait for that (as
    /// many packets as it has slots), or are in the bursts of who works on them.
    fn pages(mtu: usize, ring: usize) -> usize {
        let buffers = (mtu + HEADERS).div_ceil(ROOM);
        2 * ring + buffers * (ring + 4 * BUDGET) + SPARE
    }

    /// Whether packets have several buffers.
    pub fn multi_buffer(&self) -> bool {
        self.mtu > ONE_BUFFER
    }

    /// The memory of both pools, there from the start.
    pub fn arena(&self) -> ArenaParams {
        let bytes = (2 * self.pages + SPARE) * PAGE_SIZE;
        let max_bytes = bytes.next_multiple_of(1 << pagepool::REGION_SHIFT) as u64;
        ArenaParams { name: "demo".into(), max_bytes, commit_all: true, ..ArenaParams::default() }
    }

    /// The same as a UMEM. No veth has zero copy.
    pub fn umem(&self) -> UmemParams {
        UmemParams {
            name: "demo".into(),
            mode: XskMode::Copy,
            multi_buffer: self.multi_buffer(),
            ..UmemParams::default()
        }
    }

    /// A pool in whose ring all its idle pages have a place, so that none leaves it.
    pub fn pool(&self, name: &str) -> PoolParams {
        PoolParams {
            name: name.into(),
            ring_size: self.pages,
            headroom: HEADROOM,
            chains: if self.multi_buffer() { self.pages } else { 0 },
            wakeup: true,
            ..PoolParams::default()
        }
    }

    /// A socket.
    pub fn socket(&self, interface: &str) -> XskParams {
        let ring = self.ring as u32;
        XskParams { interface: interface.into(), rx_ring: ring, tx_ring: ring, ..XskParams::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_all_pages_at_every_mtu() {
        for mtu in [576, 1500, 3502, 3503, 9000, 65_535] {
            let sizes = VethSizes::of(mtu);
            assert!(
                sizes.pages <= MOST_PAGES && sizes.ring.is_power_of_two() && sizes.ring >= 256,
                "{sizes:?}"
            );
            assert_eq!(sizes.multi_buffer(), mtu > 3502, "{sizes:?}");
        }
        assert_eq!(VethSizes::of(1500).ring, RING);
    }
}
