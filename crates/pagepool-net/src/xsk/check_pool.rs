//! Checks that the kernel may fill a pool's buffers.
//!
//! Why    the kernel fills a chunk up to its end, whatever the pool's layout. A packet that reaches into the
//!        tailroom harms nothing yet, but is dropped and counted as `rx_bad_length`. A buffer outside the
//!        UMEM is never given to the kernel, and counted as `rx_unmapped`. This check finds both before the
//!        first packet.

use pagepool::{Bound, Error, PageBuf, XdpBuff};

use super::device::XskDevice;
use super::layout::Layout;
use crate::device::Device;
use crate::error::parameter;

impl XskDevice {
    /// Checks that this device can use another pool than the one it was [opened](Self::open) with.
    ///
    /// Its buffers must be chunks of the UMEM that hold every packet that the device may receive, without
    /// tailroom where a packet may end. Call it on the pool's owner thread, before polling. Allocates one
    /// buffer and returns it. Errors name the pool's parameter and what it must be.
    pub fn check_pool(&self, pool: &Bound) -> Result<(), Error> {
        let umem = self.umem();
        if !pool.has_domain(umem.domain_id()) {
            let must_be = format!("a list that contains the UMEM {}", umem.params().name);
            return Err(parameter("domains", "without the device's UMEM", must_be));
        }
        let layout = umem.layout();
        let Some(buffer) = pool.alloc_page() else {
            return Err(Error::Busy { what: "the pool has no free buffer to check: all are out".into() });
        };
        self.check_place(&layout, &buffer)?;
        self.check_tail(&layout, buffer)
    }

    fn check_place(&self, layout: &Layout, buffer: &PageBuf) -> Result<(), Error> {
        if buffer.dma_addr_in(self.umem().domain_id()).is_none() {
            let name = &self.umem().params().name;
            let what = format!("the UMEM {name} no longer maps the pool's memory: create both again");
            return Err(Error::Unsupported { what });
        }
        match buffer.len().ilog2() - layout.page_shift {
            0 => Ok(()),
            order => Err(parameter("order", order, "0: a chunk is one page")),
        }
    }

    fn check_tail(&self, layout: &Layout, buffer: PageBuf) -> Result<(), Error> {
        let (buffer_end, capacity) = (buffer.len(), buffer.packet_capacity());
        // bytes up to the pool's tailroom
        let room = XdpBuff::new(buffer, 0, 0).map_or(0, |packet| packet.tailroom());
        let end = layout.last_colour(room, capacity)
            + layout.packets_end(self.info().max_packet, self.info().max_buffers);
        if end <= room {
            return Ok(());
        }
        let most = buffer_end.saturating_sub(end);
        let must_be = format!("at most {most}: a packet may end {end} bytes after the start of its page");
        Err(parameter("tailroom", buffer_end - room, must_be))
    }
}

impl Layout {
    /// The last offset in a page where a chunk begins.
    fn last_colour(&self, room: usize, capacity: usize) -> usize {
        let in_pool = room.saturating_sub(capacity + self.before as usize);
        in_pool.min((1 << self.page_shift) - self.chunk as usize)
    }

    /// The last offset in a chunk where a packet ends. Those of several buffers fill chunks.
    fn packets_end(&self, max_packet: usize, max_buffers: usize) -> usize {
        match max_buffers {
            1 => (self.before as usize + max_packet).min(self.chunk as usize),
            _ => self.chunk as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(layout: Layout, max_packet: usize, max_buffers: usize) -> usize {
        layout.packets_end(max_packet, max_buffers)
    }

    #[test]
    fn a_packet_ends_with_its_chunk_at_the_latest() {
        let pages = Layout { chunk: 4096, before: 256, unaligned: false, page_shift: 12, len: 1 << 20 };
        assert_eq!((end(pages, 1518, 1), end(pages, 9018, 3), end(pages, 1 << 20, 1)), (1774, 4096, 4096));
        let coloured = Layout { chunk: 3072, unaligned: true, ..pages };
        assert_eq!((end(coloured, 1518, 1), end(coloured, 1518, 2)), (1774, 3072));
        assert_eq!((coloured.last_colour(4096, 1518), coloured.last_colour(4032, 2816)), (1024, 960));
        assert_eq!((pages.last_colour(4096, 1518), coloured.last_colour(4096, 3840)), (0, 0), "none");
        let halves = Layout { chunk: 2048, page_shift: 11, ..pages };
        assert_eq!((end(halves, 1518, 1), halves.last_colour(2048, 1518)), (1774, 0));
    }
}
