//! Packets that the program writes itself.

use crate::packet::xdp_buff::XdpBuff;
use crate::pool::bound::Bound;

impl Bound {
    /// Allocates a packet of `len` bytes to write: one page, or several if it is longer than the pool's
    /// [`max_len`](crate::PoolParams::max_len). Its bytes are whatever the pages held before.
    ///
    /// `None` if the pool has no page, or the packet would have more than 18 buffers. Costs what
    /// [`alloc_page`](Self::alloc_page) costs, for each page.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena)?.bind();
    /// let mut packet = pool.packet(60).unwrap();
    /// packet.data_mut().fill(7);
    /// assert_eq!((packet.len(), packet.headroom() >= 256), (60, true));
    /// assert_eq!(pool.packet(9000).unwrap().frags().len(), 2); // 3840 bytes in each of the first two
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn packet(&self, len: usize) -> Option<XdpBuff> {
        let first = self.alloc_page()?;
        let in_first = len.min(first.packet_capacity());
        let mut packet = XdpBuff::received(first, in_first).ok()?;
        let mut left = len - in_first;
        while left > 0 {
            let page = self.alloc_page()?;
            let (offset, bytes) = (page.packet_offset(), left.min(page.packet_capacity()));
            packet.add_frag(page, offset, bytes).ok()?;
            left -= bytes;
        }
        Some(packet)
    }
}
