//! When the kernel delivers to a socket no more that was taken out of its map.
//!
//! What   the kernel delivers packets without a lock: whoever looked the socket up a moment ago may write to
//!        the UMEM still (I4). It ends those deliveries itself when the last descriptor of a socket goes; but
//!        a child between `fork` and `exec` may have one. So a device that has packets redirected to it asks
//!        for a grace period of its own.
//! How    `membarrier`'s oldest command is one (kernel/sched/membarrier.c, v7.3). It may be missing
//!        (CONFIG_MEMBARRIER), be filtered, and is refused on machines with CPUs free of ticks (nohz_full).
//!        Then closing a packet socket, which always waits for one (net/packet/af_packet.c:packet_release,
//!        v7.3); it is made while the device is opened, for the capability may be gone when it is closed.
//!        What neither gives is leaked.
//! Who    made with the device, asked by whoever closes it.

use std::os::fd::OwnedFd;

use super::sys::socket as sys;

/// A way to wait.
#[derive(Debug)]
pub(super) enum GracePeriod {
    Membarrier,
    /// Receives nothing, and exists to be closed.
    PacketSocket(OwnedFd),
    /// Neither is to be had.
    Unknown,
}

impl GracePeriod {
    /// Finds one that works.
    pub(super) fn new() -> Self {
        match sys::has_grace_period() {
            true => Self::Membarrier,
            false => sys::packet_socket().map_or(Self::Unknown, Self::PacketSocket),
        }
    }

    /// Waits until what the kernel does on any CPU now without sleeping is over; false if that cannot be
    /// told.
    pub(super) fn wait(self) -> bool {
        match self {
            Self::Membarrier => {
                // somebody filtered it meanwhile
                sys::grace_period() || sys::packet_socket().map(drop).is_ok()
            }
            Self::PacketSocket(socket) => {
                drop(socket);
                true
            }
            Self::Unknown => false,
        }
    }
}
