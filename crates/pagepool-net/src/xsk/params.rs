//! The parameters of a UMEM and of a socket over it, checked once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pagepool::Error;

use super::bpf::redirect::Redirect;
use super::sys::socket::{Registration, flags};
use super::tx_metadata::TxMetadataMode;
use crate::device::tx_metadata;
use crate::error::{parameter, within};

/// Most slots of a ring. A table of buffers grows with them.
const MAX_RING: u32 = 1 << 16;
/// Bytes that the kernel keeps free before a packet for XDP programs. Linux: `XDP_PACKET_HEADROOM`.
pub(crate) const XDP_HEADROOM: u32 = 256;
/// The smallest chunk. Linux: `XDP_UMEM_MIN_CHUNK_SIZE`.
const MIN_CHUNK: u32 = 2048;

/// Whether the driver uses the UMEM directly (zero copy), or the kernel copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XskMode {
    /// Zero copy if the driver supports it, otherwise copy.
    /// [`SocketInfo::zero_copy`](crate::SocketInfo::zero_copy) returns the choice.
    #[default]
    Auto,
    /// The kernel copies; any driver. It may read a sent packet from the UMEM until completion: to send it
    /// unchanged, complete it before closing the device.
    Copy,
    /// The driver works on the UMEM, or opening fails.
    ZeroCopy,
}

/// The parameters of a UMEM, which all sockets over it share.
#[derive(Clone, Debug)]
pub struct UmemParams {
    /// The name in reports and errors.
    pub name: String,
    /// Bytes of a chunk, which holds one packet or a part of one. 0 (the default) is a page of the memory,
    /// the only size for aligned chunks: 4096, or 2048 in an arena with that
    /// [`page_size`](pagepool::ArenaParams::page_size). With `unaligned` any multiple of 64 from 2048 to a
    /// page.
    ///
    /// A chunk lies within one page, so the pool must have order 0.
    pub chunk_size: u32,
    /// Bytes kept free before the kernel's own 256.
    pub headroom: u32,
    /// Chunks may begin anywhere in a page, so packets lie in different cache sets (the pool's colours): a
    /// chunk of 3072 leaves room for 16.
    pub unaligned: bool,
    /// Whether the driver works on the UMEM itself.
    pub mode: XskMode,
    /// Packets of several chunks (Linux 6.6). The redirecting XDP program must accept them, too.
    pub multi_buffer: bool,
    /// Whether sent packets may carry requests: checksums, times.
    pub tx_metadata: TxMetadataMode,
}

impl Default for UmemParams {
    fn default() -> Self {
        Self {
            name: "umem0".into(),
            chunk_size: 0,
            headroom: 0,
            unaligned: false,
            mode: XskMode::Auto,
            multi_buffer: false,
            tx_metadata: TxMetadataMode::Off,
        }
    }
}

impl UmemParams {
    /// The registration of memory with these parameters.
    pub(super) fn registration(&self, addr: usize, len: u64, page_size: u32) -> Registration {
        let unaligned = if self.unaligned { flags::XDP_UMEM_UNALIGNED_CHUNK_FLAG } else { 0 };
        let (metadata, tx_metadata_len) = match self.tx_metadata {
            TxMetadataMode::Off => (0, 0),
            TxMetadataMode::On => (flags::XDP_UMEM_TX_METADATA_LEN, tx_metadata::LEN as u32),
            TxMetadataMode::SoftwareChecksum => {
                let both = flags::XDP_UMEM_TX_METADATA_LEN | flags::XDP_UMEM_TX_SW_CSUM;
                (both, tx_metadata::LEN as u32)
            }
        };
        let (addr, flags) = (addr as u64, unaligned | metadata);
        let (chunk_size, headroom) = (self.chunk(page_size), self.headroom);
        Registration { addr, len, chunk_size, headroom, flags, tx_metadata_len }
    }

    /// Bytes of a chunk in memory with pages of this size.
    fn chunk(&self, page_size: u32) -> u32 {
        if self.chunk_size == 0 { page_size } else { self.chunk_size }
    }

    pub(super) fn check(&self, page_size: u32) -> Result<(), Error> {
        let chunk = self.chunk(page_size);
        if self.unaligned && page_size == MIN_CHUNK {
            let must_be = "false in an arena with pages of 2048 bytes, which hold no larger chunk";
            return Err(parameter("unaligned", true, must_be));
        }
        let fits = match self.unaligned {
            true => (MIN_CHUNK..=page_size).contains(&chunk) && chunk.is_multiple_of(64),
            false => chunk == page_size,
        };
        if !fits {
            let must_be = match self.unaligned {
                true => format!("a multiple of 64 from 2048 to {page_size}, the arena's page_size"),
                false => format!("{page_size}, the arena's page_size: other sizes need unaligned chunks"),
            };
            return Err(parameter("chunk_size", chunk, must_be));
        }
        // The kernel requires some room; less than a minimal Ethernet frame makes no sense.
        let most = chunk - XDP_HEADROOM - 64;
        if self.headroom > most {
            let must_be = format!(
                "at most {most}: the chunk of {chunk} bytes less 256 for the kernel and 64 for a packet"
            );
            return Err(parameter("headroom", self.headroom, must_be));
        }
        self.check_metadata()
    }

    /// The kernel computes a checksum only over the first buffer, and only in copy mode.
    fn check_metadata(&self) -> Result<(), Error> {
        let must_be = match self.tx_metadata {
            TxMetadataMode::SoftwareChecksum if self.multi_buffer => "On or Off with multi_buffer",
            TxMetadataMode::SoftwareChecksum if self.mode == XskMode::ZeroCopy => "On or Off with zero copy",
            _ => return Ok(()),
        };
        Err(parameter("tx_metadata", "SoftwareChecksum", must_be))
    }
}

/// How packets are sent in copy mode.
///
/// For veths, in containers and labs: cards with zero copy always send by their ring.
///
/// * By the ring the kernel sends packet by packet, and nothing on the machine sees them before the driver.
/// * A BPF program sends up to 64 packets and 96 KiB per call, without softirqs on this CPU, and the
///   receiving side gets them together. They pass what a host's own packets pass: the interface's queueing
///   discipline, tc filters, nftables rules at the egress, taps. To these, all packets of a call have the
///   EtherType of the longest. Drops are counted ([`tx_dropped`](crate::DeviceStats::tx_dropped)).
///
/// With a BPF program, fewer than four packets still go by the ring, unless one of these four is on the way.
/// While it sends, the device notices a new queueing discipline at once, and filters, rules and taps within 7
/// to 34 ms; then all packets go by the program.
///
/// The program requires Linux 6.15, `CAP_PERFMON`, `CAP_BPF` and `CAP_NET_ADMIN`, and a polling thread in the
/// interface's network namespace. From the first send in another one, packets go by the ring, because an
/// interface's number is valid only in its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMode {
    /// By a BPF program on a veth, if packets have one buffer each and, when the device is opened, pass no
    /// queueing discipline, tc filter or nftables rule. Otherwise, and if no program is available, by the
    /// ring. [`XskDevice::tx_mode`](super::XskDevice::tx_mode) returns the choice.
    #[default]
    Auto,
    /// By the ring.
    Ring,
    /// By a BPF program, on any interface with Ethernet headers, or opening fails. With a queueing
    /// discipline, filters or rules, even small bursts use it. Measured only on veths.
    BpfBatch,
}

/// The parameters of an AF_XDP socket. Set `interface`; the default queue is 0.
#[derive(Clone, Debug)]
pub struct XskParams {
    /// The interface, in the opening thread's network namespace.
    pub interface: String,
    /// The queue, from 0.
    pub queue: u32,
    /// Slots of the receive ring: a power of two from 2 to 65536.
    pub rx_ring: u32,
    /// Slots of the transmit and completion rings: a power of two from 2 to 65536.
    pub tx_ring: u32,
    /// Number of buffers for the kernel: on the fill ring, in the driver and on the receive ring together. 0:
    /// as many as the receive ring has slots, plus those of the driver's ring with zero copy.
    pub rx_buffers: u32,
    /// The XDP program that redirects packets to the socket; `None` if it only transmits.
    pub redirect: Option<Arc<Redirect>>,
    /// The socket's key in the XDP program's map. `None`: the queue's number, as for [`Redirect::attach`].
    /// One map for several interfaces requires other keys.
    pub map_key: Option<u32>,
    /// How packets are sent in copy mode.
    pub tx_mode: TxMode,
    /// How long to try again while the queue is busy. The kernel frees the queue of a closed socket or killed
    /// process a moment later: mostly some ms; up to 6 s under five times the load that a machine can serve.
    pub busy_limit: Duration,
    /// Set this to true to stop trying again.
    pub give_up: Option<Arc<AtomicBool>>,
    /// This thread's calls do the driver's work, on this CPU (Linux 5.11). `None`: interrupts do it.
    pub busy_poll: Option<BusyPoll>,
}

/// How a device's calls poll the driver.
///
/// The device calls the kernel whenever it finds no packet or has something to send, because no interrupt
/// does the work. The kernel must know the queue's number (NAPI ID): see
/// [`XskDevice::napi_id`](super::XskDevice::napi_id). Otherwise interrupts do the work, and the calls change
/// nothing. To hold interrupts back for good, set `napi_defer_hard_irqs` and `gro_flush_timeout` in
/// `/sys/class/net/IF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Microseconds, 1 to 2147483647, for which a blocking call would poll. A device's calls never block:
    /// each polls once.
    pub micros: u32,
    /// Most packets that the driver moves per call: 1 to 65535. Drivers expect 64 or fewer; the kernel's
    /// default is 8.
    pub budget: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self { micros: 20, budget: 64 }
    }
}

impl BusyPoll {
    fn check(self) -> Result<(), Error> {
        within("busy_poll.micros", self.micros, 1..=i32::MAX as u32)?;
        within("busy_poll.budget", self.budget, 1..=u32::from(u16::MAX))
    }
}

impl Default for XskParams {
    fn default() -> Self {
        Self {
            interface: String::new(),
            queue: 0,
            rx_ring: 2048,
            tx_ring: 2048,
            rx_buffers: 0,
            redirect: None,
            map_key: None,
            tx_mode: TxMode::Auto,
            busy_limit: Duration::from_secs(10),
            give_up: None,
            busy_poll: None,
        }
    }
}

impl XskParams {
    pub(super) fn check(&self) -> Result<(), Error> {
        let ring = |field, size: u32| match size.is_power_of_two() && (2..=MAX_RING).contains(&size) {
            true => Ok(()),
            false => Err(parameter(field, size, format!("a power of two from 2 to {MAX_RING}"))),
        };
        ring("rx_ring", self.rx_ring)?;
        ring("tx_ring", self.tx_ring)?;
        within("rx_buffers", self.rx_buffers, 0..=MAX_RING)?;
        self.busy_poll.map_or(Ok(()), BusyPoll::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let umem = |chunk_size, headroom, unaligned| {
            UmemParams { chunk_size, headroom, unaligned, ..Default::default() }
                .check(4096)
                .map_err(|e| e.to_string())
        };
        assert_eq!(
            (umem(4096, 0, false), umem(0, 256, false), umem(3072, 0, true)),
            (Ok(()), Ok(()), Ok(()))
        );
        let software = UmemParams { tx_metadata: TxMetadataMode::SoftwareChecksum, ..Default::default() };
        let several = UmemParams { multi_buffer: true, ..software.clone() };
        let zero_copy = UmemParams { mode: XskMode::ZeroCopy, ..software.clone() };
        let refused = |what| format!("tx_metadata is SoftwareChecksum, but must be On or Off with {what}");
        assert!(software.check(4096).is_ok());
        assert_eq!(several.check(2048).unwrap_err().to_string(), refused("multi_buffer"));
        assert_eq!(zero_copy.check(4096).unwrap_err().to_string(), refused("zero copy"));
        let refused = "must be 4096, the arena's page_size: other sizes need unaligned chunks";
        assert!([2048, 3072].iter().all(|&size| umem(size, 0, false).unwrap_err().ends_with(refused)));
        assert!(umem(8192, 0, true).unwrap_err().ends_with("2048 to 4096, the arena's page_size"));
        let small = UmemParams { headroom: 1729, ..Default::default() };
        let refused = small.check(2048).unwrap_err().to_string();
        assert!(refused.starts_with("headroom is 1729, but must be at most 1728"), "{refused}");
        let socket = |params: XskParams| params.check().map_err(|e| e.to_string());
        assert_eq!(socket(XskParams::default()), Ok(()));
        let odd = XskParams { tx_ring: 100, ..Default::default() };
        assert_eq!(socket(odd).unwrap_err(), "tx_ring is 100, but must be a power of two from 2 to 65536");
        let odd = XskParams { rx_ring: 1, ..Default::default() };
        assert_eq!(socket(odd).unwrap_err(), "rx_ring is 1, but must be a power of two from 2 to 65536");
        let many = XskParams { rx_buffers: 65537, ..Default::default() };
        assert_eq!(socket(many).unwrap_err(), "rx_buffers is 65537, but must be 0 to 65536");
        let busy =
            |micros, budget| XskParams { busy_poll: Some(BusyPoll { micros, budget }), ..Default::default() };
        assert_eq!((socket(busy(20, 64)), socket(busy(1, 65535))), (Ok(()), Ok(())));
        let refused = "busy_poll.micros is 0, but must be 1 to 2147483647";
        assert_eq!(socket(busy(0, 64)).unwrap_err(), refused);
        assert_eq!(socket(busy(20, 65536)).unwrap_err(), "busy_poll.budget is 65536, but must be 1 to 65535");
    }
}
