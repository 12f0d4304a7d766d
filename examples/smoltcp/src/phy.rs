//! smoltcp over a device of pagepool-net. Copy this file into your program.
//!
//! Round   [`turn`](Phy::turn), then smoltcp's `poll`. If neither moved anything, [`wait`](Phy::wait). A turn
//!         receives one burst, so `poll` ends under any load.
//! Tokens  cannot fail. A send token is given only if the pages of the longest packet are in reserve and the
//!         ring has room. A received packet waits for such a token. Refused tokens are counted.
//! Copies  none for a packet in one buffer. smoltcp accepts only slices: one in several is copied and counted.

use std::time::Duration;

use pagepool::{Bound, ETH_HEADER, XdpBuff, XdpFrameBulk};
use pagepool_net::{Device, DeviceExt, TxQueue, Wake};
use smoltcp::phy::{self, ChecksumCapabilities, DeviceCapabilities};

/// Most packets that a turn receives, and that wait to be sent.
const BURST: usize = 64;

/// A device of pagepool-net as a device of smoltcp.
pub struct Phy<D> {
    /// The device. Poll it only by [`turn`](Self::turn).
    pub device: D,
    /// Packets of several buffers, which were copied: received, and sent.
    pub copied: [u64; 2],
    /// Refused tokens: the ring was full, or the pool empty.
    pub refused: [u64; 2],
    checksum: ChecksumCapabilities,
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
        let scratch = vec![0; device.info().mtu + ETH_HEADER];
        let (burst, queue) = (Vec::with_capacity(BURST), TxQueue::with_capacity(BURST, 0));
        let (done, scratch, reserve) = (XdpFrameBulk::new(), [scratch.clone(), scratch], None);
        Self { device, copied: [0; 2], refused: [0; 2], checksum, burst, queue, reserve, done, scratch, pool }
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
        let Self { queue, reserve, copied: [rx, tx], scratch: [scratch, other], .. } = self;
        *rx += u64::from(received.has_frags());
        Some((RxToken(received, scratch), TxToken(reserve, queue, other, tx)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        let can_send = self.can_send();
        let Self { queue, reserve, copied: [_, copied], scratch: [_, scratch], .. } = self;
        can_send.then_some(TxToken(reserve, queue, scratch, copied))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut these = DeviceCapabilities::default();
        (these.max_transmission_unit, these.checksum) = (self.scratch[0].len(), self.checksum.clone());
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
pub struct TxToken<'a>(&'a mut Option<XdpBuff>, &'a mut TxQueue, &'a mut [u8], &'a mut u64);

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let Self(reserve, queue, scratch, copied) = self;
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
        queue.push(packet);
        result
    }
}
