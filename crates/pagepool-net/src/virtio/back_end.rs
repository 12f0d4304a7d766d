//! What is behind the rings of a virtio device: a switch in another process, the kernel, or this process.

use std::fmt;
use std::os::fd::BorrowedFd;

use pagepool::Error;

/// Feature bits (Virtual I/O Device specification, version 1.2, sections 5.1.3 and 6).
pub(crate) mod feature {
    use pagepool::Error;

    pub(crate) const CHECKSUM: u64 = 1 << 0;
    pub(crate) const GUEST_CHECKSUM: u64 = 1 << 1;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_TSO6: u64 = 1 << 8;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const HOST_TSO6: u64 = 1 << 12;
    /// A received packet may have several buffers.
    pub(crate) const MERGED_BUFFERS: u64 = 1 << 15;
    /// Both sides say after which entry they want a signal.
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    pub(crate) const VERSION_1: u64 = 1 << 32;

    /// Checksums and segments of TCP, in both directions.
    pub(crate) const OFFLOADS: u64 =
        CHECKSUM | GUEST_CHECKSUM | GUEST_TSO4 | GUEST_TSO6 | HOST_TSO4 | HOST_TSO6;

    const NAMES: [(u64, &str); 9] = [
        (CHECKSUM, "VIRTIO_NET_F_CSUM"),
        (GUEST_CHECKSUM, "VIRTIO_NET_F_GUEST_CSUM"),
        (GUEST_TSO4, "VIRTIO_NET_F_GUEST_TSO4"),
        (GUEST_TSO6, "VIRTIO_NET_F_GUEST_TSO6"),
        (HOST_TSO4, "VIRTIO_NET_F_HOST_TSO4"),
        (HOST_TSO6, "VIRTIO_NET_F_HOST_TSO6"),
        (MERGED_BUFFERS, "VIRTIO_NET_F_MRG_RXBUF"),
        (EVENT_INDEX, "VIRTIO_F_EVENT_IDX"),
        (VERSION_1, "VIRTIO_F_VERSION_1"),
    ];

    /// The error of a back end that lacks features.
    pub(crate) fn lacking(name: &str, features: u64) -> Error {
        let names = NAMES.iter().filter(|(bit, _)| features & bit != 0).map(|&(_, name)| name);
        let names = names.collect::<Vec<_>>().join(", ");
        let remedy = match features & OFFLOADS {
            0 => "",
            _ => ": turn them on there (`tso=1` of DPDK's net_vhost), or open it without `offloads`",
        };
        Error::Unsupported { what: format!("{name}: the back end lacks {names}{remedy}") }
    }
}

/// The features to negotiate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) required: u64,
    pub(crate) optional: u64,
}

/// Memory that the back end may access: addresses of the driver's choice, and where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRegion<'a> {
    /// The address in descriptors.
    pub(crate) device: u64,
    pub(crate) len: u64,
    /// The address in this process.
    pub(crate) address: u64,
    /// The file that holds it, from its beginning; `None` for memory that only this process and the kernel
    /// reach.
    pub(crate) file: Option<BorrowedFd<'a>>,
}

/// A queue to start. Its memory is in the first region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSetup<'a> {
    pub(crate) size: u16,
    /// Addresses in this process.
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// The driver signals the back end by the first, and is signalled by the second.
    pub(crate) kick: BorrowedFd<'a>,
    pub(crate) call: BorrowedFd<'a>,
}

/// The back end of one or several pairs of queues. Calls may block for a second. They are made under the lock
/// of the [port](super::port::Port).
pub(crate) trait BackEnd: Send + fmt::Debug {
    /// The name in reports and errors: `vhost_user:/run/sw0.sock`.
    fn name(&self) -> &str;

    /// Connects, and negotiates features; returns those that both sides have. Shares the memory. An error
    /// leaves it disconnected.
    fn connect(&mut self, wanted: Wanted, memory: &[SharedRegion<'_>]) -> Result<u64, Error>;

    /// Starts a pair of queues, the receive queue first, whose rings are empty.
    fn start(&mut self, pair: u16, queues: [QueueSetup<'_>; 2]) -> Result<(), Error>;

    /// Stops a pair. True if the back end has no more access to its buffers; false if it did not answer
    /// within a second.
    fn stop(&mut self, pair: u16) -> bool;

    /// A pair has ended for good, stopped or not.
    fn closed(&mut self, pair: u16) {
        let _ = pair;
    }

    /// Whether the back end has exited or closed the connection.
    fn is_gone(&mut self) -> bool;

    /// Closes the connection.
    fn disconnect(&mut self);

    /// Packets to this pair that the back end dropped because too many waited for a buffer, as far as it says.
    fn dropped(&mut self, pair: u16) -> u64 {
        let _ = pair;
        0
    }
}
