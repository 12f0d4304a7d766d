//! Caches the mappings of a device: which memory it can access, and at which addresses.
//!
//! What   the device's address space, and the mappings of the areas that its packets came from.
//! Cost   an address: a compare and a load for each area that was seen before this one. The area's lock is
//!        taken when it is seen for the first time or is mapped anew, and for each buffer that is not mapped.

use std::sync::Arc;

use pagepool::{DeviceAddr, DmaDomain, DomainId, Mapping, PageBuf};

#[derive(Debug)]
pub(crate) struct MappingCache {
    domain: Arc<dyn DmaDomain>,
    id: DomainId,
    coherent: bool,
    known: Vec<Arc<Mapping>>,
}

impl MappingCache {
    pub(crate) fn new(domain: Arc<dyn DmaDomain>) -> Self {
        Self { id: domain.id(), coherent: domain.coherent(), domain, known: Vec::new() }
    }

    pub(crate) fn id(&self) -> DomainId {
        self.id
    }

    /// The device's address of the buffer's first byte.
    #[inline(always)]
    pub(crate) fn addr_of(&mut self, buffer: &PageBuf) -> Option<DeviceAddr> {
        match self.known.first().and_then(|mapping| buffer.dma_addr_by(mapping)) {
            Some(at) => Some(at),
            None => self.addr_in_others(buffer),
        }
    }

    /// A separate function, because most devices see buffers of one area.
    #[inline(never)]
    fn addr_in_others(&mut self, buffer: &PageBuf) -> Option<DeviceAddr> {
        match self.known.iter().skip(1).find_map(|mapping| buffer.dma_addr_by(mapping)) {
            Some(at) => Some(at),
            None => self.look_up(buffer),
        }
    }

    /// Reads the mapping from the area. A mapping of another domain with an equal id is ignored: its
    /// addresses are not this device's.
    #[cold]
    fn look_up(&mut self, buffer: &PageBuf) -> Option<DeviceAddr> {
        let mapping = buffer.mapping_in(self.id)?;
        let same = std::ptr::addr_eq(Arc::as_ptr(mapping.domain()), Arc::as_ptr(&self.domain));
        let at = buffer.dma_addr_by(&mapping).filter(|_| same)?;
        // Mappings without another holder never map anything again.
        self.known.retain(|known| known.area() != mapping.area() && Arc::strong_count(known) > 1);
        self.known.push(mapping);
        Some(at)
    }

    /// Whether device and CPU see one memory, and no sync is needed.
    #[inline(always)]
    pub(crate) fn is_coherent(&self) -> bool {
        self.coherent
    }

    #[inline]
    pub(crate) fn sync_for_device(&self, at: DeviceAddr, len: usize) {
        if !self.coherent {
            self.domain.sync_for_device(at, len);
        }
    }

    #[inline]
    pub(crate) fn sync_for_cpu(&self, at: DeviceAddr, len: usize) {
        if !self.coherent {
            self.domain.sync_for_cpu(at, len);
        }
    }
}
