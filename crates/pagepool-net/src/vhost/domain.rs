//! The address space of vhost back ends: an arena, as a whole, and the rings.

use std::sync::Arc;

use pagepool::{Arena, DeviceAddr, DmaDomain, DomainId, Provider, Region};

/// Where the arena and the rings begin, in this address space.
pub(crate) const ARENA_AT: u64 = 1 << 32;
pub(crate) const RINGS_AT: u64 = 1 << 20;

/// The address space of all vhost devices over one arena.
#[derive(Debug)]
pub(crate) struct VhostDomain {
    id: DomainId,
    area: u64,
}

impl VhostDomain {
    pub(crate) fn new(arena: &Arc<Arena>) -> Arc<Self> {
        Arc::new(Self { id: DomainId::unique(), area: arena.area().id() })
    }
}

impl DmaDomain for VhostDomain {
    fn id(&self) -> DomainId {
        self.id
    }

    fn name(&self) -> String {
        "vhost".into()
    }

    /// The back end maps the whole file before the first packet, so a region needs no call.
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        match region.area() == self.area {
            true => Ok(DeviceAddr(ARENA_AT + region.offset())),
            false => Err("a vhost back end has only the arena that its device was opened with".into()),
        }
    }

    fn unmap(&self, _region: &Region, _at: DeviceAddr) {}

    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}

    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
}
