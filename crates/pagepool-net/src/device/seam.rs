//! The seam between packets and whatever moves them.
//!
//! What   a [`Device`] is one receive and one transmit queue of an interface: it takes packets in over buffers of the
//!        pool that it is polled with, and sends frames of any memory that its address space reaches.
//! Who    one thread at a time: the one that polls it, which is the owner of the pool it receives into. A device may be
//!        sent to another thread between polls.
//! Life   whatever is on a device's rings is owned by the device; [`close`](Device::close), and dropping it, takes all
//!        of it back, whatever state the device is in.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{Bound, DmaDomain, XdpBuff, XdpFrame, XdpFrameBulk};

use crate::device::counters::counters;
use crate::sys::clock::ticks;
use crate::sys::event::wait_readable;
use crate::xsk::XskStats;

/// How long one sleeps who waits for a device that has nothing to sleep on, before it is asked again.
const BLIND: Duration = Duration::from_micros(200);

/// What a device can do, and how large its rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Slots for buffers that wait for packets.
    pub rx_ring: usize,
    /// Slots for buffers to be sent: a packet takes one for each of its buffers.
    pub tx_ring: usize,
    /// Longest packet in bytes, over all its buffers.
    pub max_packet: usize,
    /// Most buffers of a packet; 1 for a device without multi-buffer.
    pub max_buffers: usize,
    /// Whether further areas can be mapped in its domain while it runs, so that memory of other devices' pools can be
    /// sent without a copy.
    pub maps: bool,
}

/// What ended a [`wait`](Device::wait).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// Something may have arrived, been sent, or come home to the pool.
    Ready,
    /// Nothing happened in that time, or a signal ended it.
    Timeout,
    /// The device is gone: nothing will ever happen. Close it.
    Gone,
}

/// What [`arm`](Device::arm) found.
#[derive(Debug)]
#[must_use]
pub enum Armed<'a> {
    /// There is something to poll for: do not sleep.
    Ready,
    /// The device is gone: nothing will ever happen. Close it.
    Gone,
    /// There is nothing now.
    Idle {
        /// Readable once there is something; `None` for a device that can only be asked.
        fd: Option<BorrowedFd<'a>>,
        /// The longest sleep: then it wants to be asked again, for some of what happens makes nothing readable.
        at_most: Duration,
    },
}

/// System calls, and what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// Their time, as [`ticks`](crate::ticks) counts it.
    pub ticks: u64,
}

impl Calls {
    /// Makes a system call, and counts it.
    #[inline]
    pub(crate) fn make<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start = ticks();
        let result = call();
        self.count += 1;
        self.ticks += ticks().saturating_sub(start);
        result
    }
}

/// A queue of an interface.
///
/// Hot: `receive`, `transmit`, `transmit_packets`, `complete` allocate, format and log nothing, and say in counters what they refused.
pub trait Device: Send + fmt::Debug {
    /// Its name, for reports and errors.
    fn name(&self) -> &str;

    /// What it can do. Constant.
    fn capabilities(&self) -> Capabilities;

    /// The address space that it sees; `None` for one that copies all that it sends and receives.
    fn domain(&self) -> Option<&Arc<dyn DmaDomain>>;

    /// Moves packets that arrived into the vector: at most `budget`, and at most its spare capacity, for it never grows.
    /// Then gives the device fresh buffers of `pool` in their place, as many as its ring has room for; so the first call,
    /// which finds no packet, makes it ready for them. Says how many packets there were. A packet with errors, and one that has no place, is counted and its buffers go home.
    ///
    /// The pool's memory must be mapped in the device's domain; a buffer that is not goes home and is counted.
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize;

    /// Takes frames off the queue's front for as long as there is room for all buffers of the next one; says how many,
    /// refused ones included. What does not fit stays, whole. A frame that the device can never send (too long, too many buffers, memory that
    /// it does not reach) is taken, counted, and goes home.
    fn transmit(&mut self, frames: &mut VecDeque<XdpFrame>) -> usize;

    /// As [`transmit`](Self::transmit), for packets that came in just now: takes those off the front that need no frame, and says
    /// how many. It refuses none: the rest, which may be all, stays for `transmit`, which sends after what was sent before. A device
    /// that has no shorter way takes none. All that one call takes are of one area.
    fn transmit_packets(&mut self, packets: &mut Vec<XdpBuff>) -> usize {
        let _ = packets;
        0
    }

    /// Moves frames that were sent, at most `budget`, into the bulk, through which they go home; says how many.
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize;

    /// Waits until there is something to poll for, or a buffer came home to a pool that had run dry.
    fn wait(&mut self, pool: &Bound, timeout: Duration) -> Wake;

    /// For one who sleeps on several devices at once: looks whether there is something to poll for, and says what to
    /// sleep on if not. No wake-up is lost: what happens from before that look until [`disarm`](Self::disarm) makes the
    /// descriptor readable. What comes home to the pool does not; its [`wake_fd`](Bound::wake_fd) is to be slept on, too.
    /// That tells what other threads return. What this one returned since the last `receive` tells nobody, so the device is
    /// given buffers here as well, if it has too few; then there is something to poll for.
    ///
    /// A device without descriptors leaves both to what is here: it asks [`wait`](Self::wait), and says that it is to be
    /// asked again 200 microseconds later.
    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        match self.wait(pool, Duration::ZERO) {
            Wake::Ready => Armed::Ready,
            Wake::Gone => Armed::Gone,
            Wake::Timeout => Armed::Idle { fd: None, at_most: BLIND },
        }
    }

    /// Ends what `arm` began, after the sleep or instead of it: what woke is taken back, so that one may sleep again.
    fn disarm(&mut self) {}

    /// What it has done so far, and what is on its rings now.
    fn stats(&self) -> DeviceStats;

    /// Where its buffers are in the kernel, and what that counts; `None` for what is no AF_XDP socket.
    fn kernel_stats(&self) -> Option<XskStats> {
        None
    }

    /// System calls made so far to move packets. Hot: who measures asks several times a burst. None unless a device
    /// says otherwise.
    fn calls(&self) -> Calls {
        Calls::default()
    }

    /// Stops it, and takes back every buffer on its rings; they go home. Nothing moves afterwards. Any number of times.
    fn close(&mut self);
}

/// [`Device::wait`] for a device that can be armed.
pub(crate) fn sleep_on(device: &mut impl Device, pool: &Bound, timeout: Duration) -> Wake {
    let start = Instant::now();
    loop {
        let (fd, at_most) = match device.arm(pool) {
            Armed::Ready => (None, None),
            Armed::Gone => {
                device.disarm();
                return Wake::Gone;
            }
            Armed::Idle { fd, at_most } => (fd, Some(at_most)),
        };
        let asleep = Instant::now();
        let left = timeout.saturating_sub(asleep - start);
        let sleep = at_most.map_or(Duration::ZERO, |at_most| left.min(at_most));
        let [by_device, by_pool] = wait_readable([fd, pool.wake_fd()], sleep);
        device.disarm();
        if by_pool {
            pool.acknowledge_wake();
        }
        if at_most.is_none() || by_device || by_pool {
            return Wake::Ready;
        }
        if left <= sleep || asleep.elapsed() < sleep {
            return Wake::Timeout; // it is over, or a signal ended it
        }
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn domain(&self) -> Option<&Arc<dyn DmaDomain>> {
        (**self).domain()
    }
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        (**self).receive(pool, into, budget)
    }
    fn transmit(&mut self, frames: &mut VecDeque<XdpFrame>) -> usize {
        (**self).transmit(frames)
    }
    fn transmit_packets(&mut self, packets: &mut Vec<XdpBuff>) -> usize {
        (**self).transmit_packets(packets)
    }
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        (**self).complete(done, budget)
    }
    fn wait(&mut self, pool: &Bound, timeout: Duration) -> Wake {
        (**self).wait(pool, timeout)
    }
    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        (**self).arm(pool)
    }
    fn disarm(&mut self) {
        (**self).disarm();
    }
    fn stats(&self) -> DeviceStats {
        (**self).stats()
    }
    fn kernel_stats(&self) -> Option<XskStats> {
        (**self).kernel_stats()
    }
    fn calls(&self) -> Calls {
        (**self).calls()
    }
    fn close(&mut self) {
        (**self).close();
    }
}

counters! {
    /// What a device has done so far, and what is on its rings now. All counts are of packets, unless they say otherwise.
    DeviceStats:
    /// Received and handed on.
    rx_packets,
    /// Bytes of them.
    rx_bytes,
    /// Arrived while no buffer was there for them.
    rx_no_buffer,
    /// Arrived empty, or longer than the device takes.
    rx_too_long,
    /// Buffers that came back with a length of 0, or with a packet beyond the buffer, or in its pool's tailroom.
    rx_bad_length,
    /// Buffers that the device named and did not have: it named them before, or never had them.
    rx_bad_descriptor,
    /// Packets with more buffers than a packet may have, or for whose buffers the pool had no chain.
    rx_too_many_buffers,
    /// Buffers of a pool that is not mapped in the device's domain.
    rx_unmapped,
    /// Taken to be sent.
    tx_packets,
    /// Bytes of them.
    tx_bytes,
    /// Sent, and given back.
    tx_completed,
    /// Refused for good: empty, longer than the device sends, or of too many buffers.
    tx_too_long,
    /// Refused for good: a buffer that the device cannot reach.
    tx_unmapped,
    /// Completions that named nothing that was being sent.
    tx_bad_descriptor,
    /// Times that the next frame had no room.
    tx_full,
    /// Accesses of the device that its address space refused, as far as the device tells.
    faults,
    /// Buffers taken back by close, from either ring.
    closed_with,
    /// Now: buffers that wait for packets.
    in_rx,
    /// Now: buffers that are being sent, or were and were not yet given back.
    in_tx,
}
