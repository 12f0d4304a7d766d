//! The seam between packets and the devices that move them.
//!
//! A [`Device`] is one receive and one transmit queue of an interface. It takes packets in over buffers of
//! the pool that it is polled with, and sends frames of any memory in its address space. One thread polls it,
//! which owns that pool. A device may go to another thread between polls.
//!
//! # One round
//!
//! | step | call | what moves |
//! |---|---|---|
//! | complete | [`complete`](Device::complete) | frames that were sent leave the transmit ring, into a bulk |
//! | return | [`XdpFrameBulk::flush`] | their buffers return to the pool, and can be received into next |
//! | receive | [`receive`](Device::receive) | packets leave the receive ring; fresh buffers replace them |
//! | hand up | the caller | each packet is dropped, kept, or put into a [`TxQueue`] |
//! | send | [`transmit`](Device::transmit) | the queue's front goes onto the transmit ring, as room allows |
//! | wait | [`arm`](Device::arm), sleep | only if none of these moved anything |
//!
//! ```
//! use pagepool::{Bound, XdpBuff, XdpFrameBulk};
//! use pagepool_net::{Device, DeviceExt, TxQueue, Wake};
//!
//! /// Sends everything back to where it came from, until the device is gone.
//! fn echo(device: &mut dyn Device, pool: &Bound) {
//!     let mut packets = Vec::with_capacity(64);
//!     let mut queue = TxQueue::with_capacity(1024, 64);
//!     let mut done = XdpFrameBulk::new();
//!     loop {
//!         let mut moved = device.complete(&mut done, usize::MAX);
//!         done.flush();
//!         moved += device.receive(pool, &mut packets, 64);
//!         queue.push_burst(&mut packets);
//!         moved += device.transmit(&mut queue);
//!         if moved == 0 && device.wait(pool, std::time::Duration::from_secs(1)) == Wake::Gone {
//!             break;
//!         }
//!     }
//!     device.close();
//! }
//! ```
//!
//! # Rules
//!
//! * Order: there is one way out. What is in a [`TxQueue`] is sent in its order.
//! * Room: [`transmit`](Device::transmit) leaves in the queue what the ring has no room for.
//!   [`tx_room`](super::DeviceExt::tx_room) tells the room before, without a system call.
//! * Refused: what a device can never send returns to its pool, counts in [`TxQueue::refused`] and in
//!   `tx_too_long` or `tx_unmapped`, and never as sent.
//! * Sleep: from [`arm`](Device::arm) until the next `receive` or `arm` no wake-up is lost.
//! * End: what is on the rings belongs to the device. [`close`](Device::close), and dropping it, takes all of
//!   it back, whatever state the device is in.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Bound, DmaDomain, ETH_HEADER, XdpBuff, XdpFrameBulk};

use super::stats::{Calls, DeviceStats};
use super::tx_queue::TxQueue;

/// Bytes of a VLAN tag.
pub(crate) const VLAN_TAG: usize = 4;

/// Bytes that every interface takes beyond its MTU: an Ethernet header with a VLAN tag.
pub(crate) const HEADERS: usize = ETH_HEADER + VLAN_TAG;

/// What a device is, which never changes: its name, its address space, and its limits.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// For reports and errors.
    pub name: String,
    /// The address space that it sees; `None` for one that copies all that it sends and receives.
    pub domain: Option<Arc<dyn DmaDomain>>,
    /// Slots for buffers that wait for packets.
    pub rx_ring: usize,
    /// Slots for buffers to be sent: a packet takes one for each of its buffers.
    pub tx_ring: usize,
    /// Longest packet in bytes, from the Ethernet header on, over all its buffers.
    pub max_packet: usize,
    /// The MTU: the most bytes after an Ethernet header. A VLAN tag fits in addition, two into most devices.
    pub mtu: usize,
    /// Most buffers of a packet; 1 for a device without multi-buffer.
    pub max_buffers: usize,
    /// Whether further areas can be mapped in its domain while it runs, so that memory of other devices'
    /// pools can be sent without a copy.
    pub maps: bool,
}

/// What those who [observe](pagepool::publish) a process are told of a device, beside its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// `socket` of one of the kernel, of an interface with a number; `nic` of any other.
    pub kind: &'static str,
    /// Its interface.
    pub interface: String,
    /// Which queue of that it is.
    pub queue: u32,
    /// The number of the interface, in the network namespace of the socket.
    pub ifindex: Option<u32>,
    /// What else there is to say: names and values.
    pub params: Vec<(&'static str, String)>,
}

impl DeviceDescription {
    /// Interface and queue: `eth0:3`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.interface, self.queue)
    }

    /// Where it is, as parameters.
    pub(crate) fn place(&self) -> Vec<(&'static str, String)> {
        let mut place = vec![("interface", self.interface.clone()), ("queue", self.queue.to_string())];
        place.extend(self.ifindex.map(|index| ("ifindex", index.to_string())));
        place
    }
}

/// What a loop may read of a device in every round; it costs no system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Buffers that the transmit ring has room for.
    pub tx_room: usize,
    /// System calls made so far to move packets.
    pub calls: Calls,
}

/// What [`arm`](Device::arm) found: of a device, a [handoff](crate::HandoffRx::arm) or a
/// [forwarder](crate::Forwarder::arm).
#[derive(Debug)]
#[must_use]
pub enum Armed<'a> {
    /// There is something to poll for: do not sleep.
    Ready,
    /// The device, or the sender of a handoff, is gone: nothing will ever happen. Close it.
    Gone,
    /// There is nothing now.
    Idle {
        /// Readable once there is something; `None` for a device that can only be asked.
        fd: Option<BorrowedFd<'a>>,
        /// Readable once a [`Waker`](crate::Waker) woke the thread, if the device has any.
        waker_fd: Option<BorrowedFd<'a>>,
        /// The longest sleep: then it wants to be asked again, for some of what happens makes nothing
        /// readable.
        at_most: Duration,
    },
}

/// One receive and one transmit queue of an interface.
///
/// One round of a loop: [`complete`](Self::complete), flush the bulk, [`receive`](Self::receive), handle the
/// packets, [`transmit`](Self::transmit); if nothing moved, [`arm`](Self::arm) and sleep. One thread polls a
/// device, the owner of the pool that it receives into.
///
/// `receive` (into a vector with capacity), `transmit`, `complete` and `state` allocate, format and log
/// nothing, and count what they refuse.
pub trait Device: Send + fmt::Debug {
    /// Its name, address space and limits, which never change.
    fn info(&self) -> &DeviceInfo;

    /// Moves packets that arrived into the vector, at most `budget` and at most its spare capacity; returns
    /// how many. A vector without any capacity is given some first, for `budget` packets or as many as the
    /// receive ring has slots; one that has some never grows. Then gives the device fresh buffers of `pool`,
    /// as many as its ring has room for. So the first call, which finds no packet, makes the device ready to
    /// receive. A packet with errors, and one for which there is no room, is counted and dropped.
    ///
    /// The pool's memory must be mapped in the device's domain; a buffer that is not mapped is counted and
    /// returns to its pool.
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize;

    /// Puts frames from the queue's front onto the transmit ring, while there is room for all buffers of the
    /// next one; returns how many. The device has them until [`complete`](Self::complete) gives them back. A
    /// frame that does not fit stays in the queue, whole. A frame that the device can never send (empty, too
    /// long, too many buffers, memory that it cannot access) is [refused](TxQueue::refuse).
    fn transmit(&mut self, queue: &mut TxQueue) -> usize;

    /// Moves frames that were sent, at most `budget`, into the bulk, which returns their buffers; returns how
    /// many.
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize;

    /// Room on the transmit ring, and system calls so far. Makes no system call.
    fn state(&self) -> QueueState;

    /// Call it before sleeping: looks whether there is something to poll for, and if not says what to sleep
    /// on. The first descriptor becomes readable for everything that happens from that look until the next
    /// `receive` or `arm`, the second for calls of a waker until the next `arm`.
    ///
    /// Buffers that other threads return to the pool do not make it readable: sleep on the pool's
    /// [`wake_fd`](Bound::wake_fd), too. Buffers that this thread returned since the last `receive` signal
    /// nothing, so `arm` gives them to a device that has too few; then there is something to poll for.
    /// [`wait`](super::DeviceExt::wait) does all that for one device.
    fn arm(&mut self, pool: &Bound) -> Armed<'_>;

    /// Its counters, and what is on its rings now. May make system calls.
    fn stats(&self) -> DeviceStats;

    /// What observers of the process are told of it. Makes no system call. By default it is a `nic` of one
    /// queue, called as the [name](DeviceInfo::name) is, with the length of its rings and its MTU.
    fn describe(&self) -> DeviceDescription {
        let info = self.info();
        let params = [("rx_ring", info.rx_ring), ("tx_ring", info.tx_ring), ("mtu", info.mtu)];
        DeviceDescription {
            kind: "nic",
            interface: info.name.clone(),
            queue: 0,
            ifindex: None,
            params: params.map(|(name, value)| (name, value.to_string())).into(),
        }
    }

    /// Stops the device, and returns every buffer on its rings to its pool. Nothing moves afterwards. May be
    /// called more than once.
    fn close(&mut self);
}

/// Gives a vector that never had capacity room for a burst; says whether it did. Asked where nothing was
/// received: then it costs a busy round nothing.
#[inline]
pub(crate) fn make_room(into: &mut Vec<XdpBuff>, budget: usize, rx_ring: usize) -> bool {
    let is_bare = into.capacity() == 0 && budget > 0;
    if is_bare {
        into.reserve_exact(budget.min(rx_ring));
    }
    is_bare
}

/// The device in a box. One that is in such a box already stays there: a second one would cost a call more
/// each time.
pub(crate) fn boxed<D: Device + 'static>(device: D) -> Box<dyn Device> {
    let device: Box<dyn Any> = Box::new(device);
    match device.downcast::<Box<dyn Device>>() {
        Ok(boxed) => *boxed,
        Err(device) => device.downcast::<D>().expect("this is what it was made of"),
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn info(&self) -> &DeviceInfo {
        (**self).info()
    }
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        (**self).receive(pool, into, budget)
    }
    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        (**self).transmit(queue)
    }
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        (**self).complete(done, budget)
    }
    fn state(&self) -> QueueState {
        (**self).state()
    }
    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        (**self).arm(pool)
    }
    fn stats(&self) -> DeviceStats {
        (**self).stats()
    }
    fn describe(&self) -> DeviceDescription {
        (**self).describe()
    }
    fn close(&mut self) {
        (**self).close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemNicParams, NicDomain, mem_nic};

    #[test]
    fn a_device_in_a_box_is_not_put_into_another() {
        let (nic, _wire) = mem_nic(MemNicParams::default(), NicDomain::new("mem0")).unwrap();
        let place = |device: &dyn Device| std::ptr::from_ref(device).cast::<u8>();
        let first = boxed(nic);
        let at = place(&*first);
        assert_eq!(place(&*boxed(first)), at);
    }
}
