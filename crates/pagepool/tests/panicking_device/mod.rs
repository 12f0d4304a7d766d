//! A device that panics once when it is handed memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pagepool::{DeviceAddr, DmaDomain, DomainId, Region};

#[derive(Debug)]
pub struct PanicsOnce(DomainId, AtomicBool);

impl PanicsOnce {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(DomainId::unique(), AtomicBool::new(false)))
    }

    /// Makes it panic at the next memory.
    pub fn arm(&self) {
        self.1.store(true, Relaxed);
    }
}

impl DmaDomain for PanicsOnce {
    fn id(&self) -> DomainId {
        self.0
    }
    fn name(&self) -> String {
        "panics once".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        Ok(DeviceAddr(region.offset()))
    }
    fn unmap(&self, _: &Region, _: DeviceAddr) {}
    fn sync_for_device(&self, _: DeviceAddr, _: usize) {
        assert!(!self.1.swap(false, Relaxed), "the device panics");
    }
    fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {}
    fn coherent(&self) -> bool {
        false
    }
}
