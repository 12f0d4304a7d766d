//! Memory that the CPU cannot read: pages with a device address only.
//!
//! What   a [`Provider`] over numbered pages without a CPU address, such as a device's own memory or an
//!        exported buffer. The domains of the area give their device addresses. Linux: `net_iov`, the
//!        dma-buf provider.
//! Who    any thread; one short lock.

// UNSAFETY: a provider promises that its pages exist, once each.
#![expect(unsafe_code)]

use std::sync::Arc;

use crate::error::Error;
use crate::mem::area::{Area, REGION_SHIFT};
use crate::mem::arena::backing::bytes;
use crate::mem::arena::free_pages::{FreePages, Search};
use crate::mem::page::{MAX_ORDER, NodeId, PAGE_SIZE, PageIdx};
use crate::mem::provider::Provider;

/// A provider of memory that only devices can access. All of it is present from the start.
///
/// Freed pages are kept like those of an [`Arena`](crate::Arena): in several orders at once, last in, first
/// out.
///
/// ```
/// use pagepool::{DeviceMemory, NodeId, PageIdx, Provider};
///
/// let hbm = DeviceMemory::new("hbm0", 1 << 20, NodeId(0))?;
/// let mut page = [PageIdx(0)];
/// assert_eq!(hbm.reserve(2, None, &mut page), 1);
/// assert_eq!(hbm.area().base(), None);
/// // SAFETY: it was reserved just now, and nobody uses it.
/// unsafe { hbm.release(2, &page) };
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceMemory {
    name: String,
    area: Arc<Area>,
    free: FreePages,
}

impl DeviceMemory {
    /// `len_bytes` of device memory, a multiple of 4096, next to `node`. Costs only the tables: up to 64
    /// bytes for each used 4 KiB. Errors: [`Error::Parameter`] for any other length.
    pub fn new(name: impl Into<String>, len_bytes: u64, node: NodeId) -> Result<Arc<Self>, Error> {
        let is_whole = len_bytes > 0 && len_bytes.is_multiple_of(PAGE_SIZE as u64);
        Error::require(is_whole, "len_bytes", len_bytes, "a multiple of 4096, and not 0")?;
        let area = Area::unreadable(len_bytes, REGION_SHIFT, node)?;
        let free = FreePages::new(&area, 1)?;
        for region in 0..area.regions() {
            // SAFETY: this is the provider; the CPU has no address of the memory.
            unsafe { area.add_region(region) }?;
            free.add_region(region);
        }
        Ok(Arc::new(Self { name: name.into(), area, free }))
    }

    /// The number of base pages of 4 KiB that pools hold. Takes the lock of the free pages.
    pub fn pages_out(&self) -> u64 {
        self.free.out()
    }
}

// SAFETY: one area, all of it present; `FreePages` gives each page once and aligned; the CPU has no address
// of it.
unsafe impl Provider for DeviceMemory {
    fn area(&self) -> &Arc<Area> {
        &self.area
    }

    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        if order > MAX_ORDER || out.is_empty() {
            return 0;
        }
        let taken = self.free.take(order, node, out, Search::Usual);
        if taken > 0 || node.is_none() {
            return taken;
        }
        self.free.take(order, None, &mut out[..1], Search::Usual)
    }

    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        self.free.give(order, pages);
    }

    fn available(&self, order: u8) -> usize {
        if order > MAX_ORDER { 0 } else { self.free.count(order) }
    }

    fn describe(&self) -> String {
        // Does not take the area's lock, under which a domain may call this: all pages are present.
        let size = bytes(self.area.len_bytes());
        format!("{}: {size} of device memory, not readable by the CPU", self.name)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: this is the provider, being dropped: every page out keeps it alive, so none is. I6: after
        // this no domain maps its pages.
        unsafe { self.area.close() };
    }
}
