//! The checking IOMMU as the memory of a simulated device.

// UNSAFETY: the trait's methods are unsafe to call; these check every access.
#![expect(unsafe_code)]

use pagepool::DeviceAddr;
use pagepool_net::{DeviceMemory, Fault};

use crate::iommu::{CheckingIommu, IommuFault};

impl DeviceMemory for CheckingIommu {
    unsafe fn device_read(&self, at: DeviceAddr, into: &mut [u8]) -> Result<(), Fault> {
        Self::device_read(self, at, into).map_err(Fault::from)
    }

    unsafe fn device_write(&self, at: DeviceAddr, from: &[u8]) -> Result<(), Fault> {
        Self::device_write(self, at, from).map_err(Fault::from)
    }
}

impl From<IommuFault> for Fault {
    fn from(fault: IommuFault) -> Self {
        match fault {
            IommuFault::NotSynced(at) => Self::NotSynced(at),
            IommuFault::AfterUnmap(at) | IommuFault::Unmapped(at) => Self::Unmapped(at),
        }
    }
}
