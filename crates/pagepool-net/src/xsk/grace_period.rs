//! How to wait until the kernel no longer writes to a socket that was removed from its map.
//!
//! What   the kernel redirects packets under RCU: a CPU that just looked a socket up may still write to the
//!        UMEM (I4). When the last descriptor is closed, the kernel waits for such CPUs. But a child between
//!        `fork` and `exec` may have one, so a device with a redirect waits itself.
//! How    by `membarrier`'s oldest command (kernel/sched/membarrier.c, v7.3). It may be missing
//!        (CONFIG_MEMBARRIER) or filtered, and is refused on machines with CPUs free of ticks (nohz_full).
//!        Otherwise by closing a packet socket (net/packet/af_packet.c:packet_release, v7.3), made with the
//!        device because the capability may be gone at the close. Without either, the buffers are leaked.
//! Who    made with the device; the thread that closes the device waits.

use std::os::fd::OwnedFd;

use super::sys::socket as sys;

/// The packet socket, if it must be closed. `None` if `membarrier` waits, and also if nothing does now: the
/// close then tries both again.
#[derive(Debug)]
pub(super) struct GracePeriod(pub(super) Option<OwnedFd>);

impl GracePeriod {
    /// Finds a way that works.
    pub(super) fn new() -> Self {
        Self(if sys::has_grace_period() { None } else { sys::packet_socket().ok() })
    }

    /// Waits for the end of all current RCU read-side sections. False if it cannot.
    pub(super) fn wait(self) -> bool {
        let Some(socket) = self.0 else {
            // a seccomp filter may have been set since the device was opened
            return sys::grace_period() || sys::packet_socket().map(drop).is_ok();
        };
        // `packet_release` waits for the grace period.
        drop(socket);
        true
    }
}
