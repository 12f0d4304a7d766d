//! How to wait until the kernel no longer writes to a socket that was taken out of its map.
//!
//! What   the kernel redirects packets under RCU: a CPU that looked the socket up a moment ago may still
//!        write to the UMEM (I4). When the last descriptor of a socket is closed, the kernel waits for such
//!        CPUs itself; but a child between `fork` and `exec` may have one. So a device that has packets
//!        redirected to it waits for a grace period of its own.
//! How    `membarrier`'s oldest command waits for one (kernel/sched/membarrier.c, v7.3). It may be missing
//!        (CONFIG_MEMBARRIER), be filtered, and is refused on machines with CPUs free of ticks (nohz_full).
//!        Then closing a packet socket, which always waits for one (net/packet/af_packet.c:packet_release,
//!        v7.3); the socket is made when the device is opened, because the capability may be gone when it is
//!        closed. If neither is available, the buffers are leaked.
//! Who    made with the device; the thread that closes the device waits.

use std::os::fd::OwnedFd;

use super::sys::socket as sys;

/// A way to wait.
#[derive(Debug)]
pub(super) enum GracePeriod {
    Membarrier,
    /// Receives nothing, and exists to be closed.
    PacketSocket(OwnedFd),
    /// Neither is available.
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

    /// Waits for the end of all RCU read-side sections that run now; false if that is unknown.
    pub(super) fn wait(self) -> bool {
        match self {
            Self::Membarrier => {
                // a seccomp filter may have been set since the device was opened
                sys::grace_period() || sys::packet_socket().map(drop).is_ok()
            }
            Self::PacketSocket(socket) => {
                // `packet_release` waits for the grace period before it returns.
                drop(socket);
                true
            }
            Self::Unknown => false,
        }
    }
}
