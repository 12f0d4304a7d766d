//! Descriptors on the rings between driver and port.

use pagepool::DeviceAddr;

/// The id of a buffer on the rings: its slot in the driver's table, and above it the slot's life. A second
/// report of a completed buffer therefore never names the next buffer in that slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BufferId(pub(super) u32);

impl BufferId {
    #[inline(always)]
    pub(super) fn new(slot: u16, life: u16) -> Self {
        Self(u32::from(life) << 16 | u32::from(slot))
    }

    #[inline(always)]
    pub(super) fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    #[inline(always)]
    pub(super) fn life(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// Driver to device: a buffer for a packet, or a part of a packet to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) at: DeviceAddr,
    pub(super) len: u32,
    pub(super) id: BufferId,
    /// Whether it is the packet's last part; has no meaning for buffers to fill.
    pub(super) last: bool,
}

impl Posted {
    /// An empty descriptor, for arrays.
    pub(super) const NONE: Self = Self { at: DeviceAddr(0), len: 0, id: BufferId(0), last: false };
}

/// Device to driver: a buffer with a packet, or with a part of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) id: BufferId,
    pub(super) len: u32,
    pub(super) last: bool,
}
