//! For tests of devices: the conformance suite with its rig, a device that injects faults, and the checking
//! IOMMU as the memory of a device.

pub(crate) mod conformance;
pub(crate) mod far_end;
pub(crate) mod fault_nic;
mod iommu_memory;
pub(crate) mod rig;
