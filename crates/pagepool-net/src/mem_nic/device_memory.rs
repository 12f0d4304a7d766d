//! How a simulated device accesses memory: only by device addresses, through its address space.

// UNSAFETY: only the code that runs a device knows what it may touch; the two methods are unsafe to call.
#![expect(unsafe_code)]

use std::fmt;

use pagepool::{DeviceAddr, DmaDomain};

/// Why an access of a device was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is mapped at this address now.
    Unmapped(DeviceAddr),
    /// The bytes at this address were not synced for the device. Only domains that check this report it.
    NotSynced(DeviceAddr),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped(at) => write!(f, "device access to {at}, where nothing is mapped"),
            Self::NotSynced(at) => write!(f, "device access to {at}, which was not synced for the device"),
        }
    }
}

impl std::error::Error for Fault {}

/// An address space that a simulated device can read and write.
///
/// After a fault nothing was accessed; the implementation or the device counts it.
pub trait DeviceMemory: DmaDomain {
    /// Reads memory as the device.
    ///
    /// # Safety
    /// * The bytes belong to the device until the call returns: they are of a buffer that is on one of its
    ///   rings, and no other code writes them (I1, I4).
    ///
    /// Any address where nothing is mapped is a fault.
    unsafe fn device_read(&self, at: DeviceAddr, into: &mut [u8]) -> Result<(), Fault>;

    /// Writes memory as the device.
    ///
    /// # Safety
    /// * The bytes belong to the device until the call returns: they are of a buffer that is on one of its
    ///   rings, and there is no reference to them (I1, I4).
    unsafe fn device_write(&self, at: DeviceAddr, from: &[u8]) -> Result<(), Fault>;
}
