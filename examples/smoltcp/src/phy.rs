//! smoltcp over a device of pagepool-net. Copy this file into your program.
//!
//! Round   [`turn`](Phy::turn), then smoltcp's `poll`. If neither moved anything, [`wait`](Phy::wait). A turn
//!         receives one burst, so `poll` ends under any load.
//! Tokens  cannot fail. A send token is given only if the pages of the longest packet are in reserve and the
//!         ring has room. A received packet waits for such a token. Refused tokens are counted.
//! Copies  none for a packet in one buffer. smoltcp accepts only slices: one in several is copied and counted.
//! Offload a device with [`with_offloads`](Phy::with_offloads) computes checksums, and cuts packets of TCP into
//!         segments; it may receive packets that the other side did not finish likewise.

use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

use pagepool::{Bound, ETH_HEADER, XdpBuff, XdpFrameBulk};
use pagepool_net::{Device, DeviceExt, TxChecksum, TxMetadata, TxQueue, TxSegment, Wake};
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, PacketMeta};

/// Most packets that a turn receives, and that wait to be sent.
const BURST: usize = 64;
/// The longest packet that a device cuts: an Ethernet header, and what the header of IP can say.
const MAX_CUT: usize = ETH_HEADER + u16::MAX as usize;

/// A device of pagepool-net as a device of smoltcp.
pub struct Phy<D> {
    /// The device. Poll it only by [`turn`](Self::turn).
    pub device: D,
    /// Packets of several buffers, which were copied: received, and sent.
    pub copied: [u64; 2],
    /// Refused tokens: the ring was full, or the pool empty.
    pub refused: [u64; 2],
    /// Packets that the device was to cut.
    pub cut: u64,
    checksum: ChecksumCapabilities,
    /// Whether the device computes checksums and cuts packets.
    offloads: bool,
    /// The longest packet that is not cut.
    longest: usize,
    /// The rest of the burst, the next packet last.
    burst: Vec<XdpBuff>,
    queue: TxQueue,
    /// The longest packet, to be written next.
    reserve: Option<XdpBuff>,
    done: XdpFrameBulk,
    /// For packets of several buffers: received, and to send.
    scratch: [Vec<u8>; 2],
    /// The pool of the device. Declared last, because a pool ends after its buffers.
    pub pool: Bound,
}

impl<D: Device> Phy<D> {
    /// Takes a device and its pool. smoltcp computes and verifies the checksums that `checksum` says: by
    /// default all. `Checksum::Tx` for TCP and UDP suits a veth whose peer leaves them unfinished (`tx` on).
    pub fn new(device: D, pool: Bound, checksum: ChecksumCapabilities) -> Self {
        let longest = device.info().mtu + ETH_HEADER;
        let scratch = vec![0; longest];
        let (burst, queue) = (Vec::with_capacity(BURST), TxQueue::with_capacity(BURST, 0));
        let (done, scratch, reserve) = (XdpFrameBulk::new(), [scratch.clone(), scratch], None);
        Self {
            device,
            copied: [0; 2],
            refused: [0; 2],
            cut: 0,
            checksum,
            offloads: false,
            longest,
            burst,
            queue,
            reserve,
            done,
            scratch,
            pool,
        }
    }

    /// Takes a device that was opened with [`offloads`](pagepool_net::OpenParams::offloads), and its pool.
    pub fn with_offloads(device: D, pool: Bound) -> Self {
        let mut checksum = ChecksumCapabilities::default();
        (checksum.tcp, checksum.udp) = (Checksum::None, Checksum::None);
        let longest = device.info().max_packet.min(MAX_CUT);
        let scratch = [vec![0; longest], vec![0; longest]];
        Self { offloads: true, scratch, ..Self::new(device, pool, checksum) }
    }

    /// Sends, takes back what was sent, and receives unless packets wait. Returns how many moved.
    pub fn turn(&mut self) -> usize {
        let moved = self.device.transmit(&mut self.queue) + self.device.complete(&mut self.done, usize::MAX);
        self.done.flush();
        // The reserve comes before the device, which takes all that the pool has.
        if self.reserve() == 0 || !self.burst.is_empty() {
            return moved;
        }
        let received = self.device.receive(&self.pool, &mut self.burst, BURST);
        self.burst.reverse();
        moved + received
    }

    /// Sleeps until packets can move, at most for `timeout`. After `Wake::Gone`, close it.
    pub fn wait(&mut self, timeout: Duration) -> Wake {
        let is_idle = self.burst.is_empty() && self.queue.is_empty() && self.reserve.is_some();
        self.device.wait(&self.pool, if is_idle { timeout } else { timeout.max(Duration::from_millis(1)) })
    }

    /// Closes the device. Returns the pool, of which no buffer is out.
    pub fn close(mut self) -> Bound {
        self.device.close();
        self.pool
    }

    /// Takes the longest packet from the pool, unless there is one. Returns its number of buffers.
    fn reserve(&mut self) -> usize {
        self.reserve = self.reserve.take().or_else(|| self.pool.packet(self.scratch[0].len()));
        self.reserve.as_ref().map_or(0, |packet| 1 + packet.frags().len())
    }

    fn can_send(&mut self) -> bool {
        if self.queue.len() >= BURST {
            self.device.transmit(&mut self.queue);
        }
        let (buffers, queued) = (self.reserve(), self.queue.len());
        let is_full = queued >= BURST || self.device.state().tx_room < (queued + 1) * buffers;
        self.refused[0] += u64::from(is_full);
        self.refused[1] += u64::from(buffers == 0);
        !is_full && buffers > 0
    }
}

impl<D: Device + 'static> phy::Device for Phy<D> {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let can_reply = !self.burst.is_empty() && self.can_send();
        let received = if can_reply { self.burst.pop() } else { None }?;
        self.copied[0] += u64::from(received.has_frags());
        let Self { queue, reserve, copied: [_, copied], scratch: [read, scratch], offloads, cut, .. } = self;
        let offload = offloads.then(|| (PacketMeta::default(), cut));
        Some((RxToken(received, read), TxToken { reserve, queue, scratch, copied, offload }))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        let can_send = self.can_send();
        let Self { queue, reserve, copied: [_, copied], scratch: [_, scratch], offloads, cut, .. } = self;
        let offload = offloads.then(|| (PacketMeta::default(), cut));
        can_send.then_some(TxToken { reserve, queue, scratch, copied, offload })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut these = DeviceCapabilities::default();
        (these.max_transmission_unit, these.checksum) = (self.longest, self.checksum.clone());
        these.segmentation.tcpv4 = NonZeroUsize::new(self.scratch[0].len()).filter(|_| self.offloads);
        these
    }
}

/// A received packet.
pub struct RxToken<'a>(XdpBuff, &'a mut [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let len = if self.0.has_frags() { self.0.copy_to(self.1) } else { 0 };
        read(if len > 0 { &self.1[..len] } else { self.0.data() })
    }
}

/// Pages for a packet, and its place in the queue.
pub struct TxToken<'a> {
    reserve: &'a mut Option<XdpBuff>,
    queue: &'a mut TxQueue,
    scratch: &'a mut [u8],
    copied: &'a mut u64,
    /// With offloads: what smoltcp requests, and how many packets were to be cut.
    offload: Option<(PacketMeta, &'a mut u64)>,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let Self { reserve, queue, scratch, copied, offload } = self;
        let Some(mut packet) = reserve.take() else { unreachable!("a token is given with it") };
        let _ = packet.adjust_tail(len as isize - packet.len() as isize); // no frame has less than 14 bytes
        let is_copied = packet.has_frags();
        let result = write(if is_copied { &mut scratch[..len] } else { packet.data_mut() });
        if is_copied {
            *copied += 1;
            let (first, rest) = scratch[..len].split_at(packet.data_len()); // as many as each page holds
            packet.data_mut().copy_from_slice(first);
            let parts = packet.frags_mut().iter_mut().zip(rest.chunks(first.len()));
            parts.for_each(|(frag, part)| frag.data_mut().copy_from_slice(part));
        }
        if let Some((meta, cut)) = offload {
            *cut += u64::from(request(&mut packet, meta.segmentation_offload_size));
        }
        queue.push(packet);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        if let Some((requested, _)) = &mut self.offload {
            *requested = meta;
        }
    }
}

/// Requests the checksum of TCP or UDP, and segments if smoltcp does. Returns whether it is cut.
fn request(packet: &mut XdpBuff, size: Option<NonZeroU16>) -> bool {
    let segment = size.and_then(|size| TxSegment::find(packet.data(), size.get()));
    let Some(checksum) = TxChecksum::prepare(packet.data_mut()) else { return false };
    let asks = TxMetadata { checksum: Some(checksum), segment, ..Default::default() };
    let written = asks.write(packet);
    debug_assert!(written.is_ok(), "the pool of such a device has 64 bytes of headroom");
    segment.is_some()
}
