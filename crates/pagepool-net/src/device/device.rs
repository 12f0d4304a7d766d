//! The trait that every device implements.
//!
//! A [`Device`] is one receive and one transmit queue of an interface. It receives packets into buffers of
//! the pool that it is polled with, and sends frames from any memory in its address space. One thread polls
//! it: the owner of that pool. A device may move to another thread between polls.
//!
//! # One round
//!
//! | step | call | what moves |
//! |---|---|---|
//! | complete | [`complete`](Device::complete) | sent frames leave the transmit ring, into a bulk |
//! | return | [`XdpFrameBulk::flush`] | their buffers return to the pool, and can receive again |
//! | receive | [`receive`](Device::receive) | packets leave the receive ring; fresh buffers replace them |
//! | hand up | the caller | each packet is dropped, kept, or put into a [`TxQueue`] |
//! | send | [`transmit`](Device::transmit) | the queue's front goes onto the transmit ring, if it has room |
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
//! * Order: a [`TxQueue`] is sent first in, first out.
//! * Room: [`transmit`](Device::transmit) leaves a frame in the queue if the ring has no room for it.
//!   [`QueueState::tx_room`] is the room, known without a system call.
//! * Refused: a frame that the device can never send returns to its pool. It counts in [`TxQueue::refused`]
//!   and in `tx_too_long` or `tx_unmapped`, never as sent.
//! * Sleep: from [`arm`](Device::arm) until the next `receive` or `arm` no wake-up is lost.
//! * End: buffers on the rings belong to the device. [`close`](Device::close), or dropping it, returns all of
//!   them, whatever state the device is in.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Bound, DmaDomain, ETH_HEADER, XdpBuff, XdpFrameBulk};

use super::stats::{Calls, DeviceStats};
use super::tx_queue::TxQueue;

pub(crate) const VLAN_TAG: usize = 4;

/// Bytes that every interface accepts beyond its MTU: an Ethernet header with a VLAN tag.
pub(crate) const HEADERS: usize = ETH_HEADER + VLAN_TAG;

/// A device's name, address space and limits. They never change.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The name in reports and errors.
    pub name: String,
    /// The device's address space; `None` if it copies everything that it sends and receives.
    pub domain: Option<Arc<dyn DmaDomain>>,
    /// Slots for buffers that wait for packets.
    pub rx_ring: usize,
    /// Slots for buffers to send. A packet takes one for each of its buffers.
    pub tx_ring: usize,
    /// Longest packet in bytes, from the Ethernet header on, over all its buffers.
    pub max_packet: usize,
    /// The MTU: the most bytes after an Ethernet header. One VLAN tag fits in addition; most devices allow
    /// two.
    pub mtu: usize,
    /// Most buffers of a packet; 1 for a device without multi-buffer.
    pub max_buffers: usize,
    /// Its MAC address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Whether more areas can be mapped in its domain while it runs. Then it sends memory of other devices'
    /// pools without a copy.
    pub maps: bool,
}

/// A device as [observers](pagepool::publish) of the process see it, without its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// `socket` for a kernel socket on an interface with an index; `nic` for any other device.
    pub kind: &'static str,
    /// Its interface.
    pub interface: String,
    /// The queue of the interface.
    pub queue: u32,
    /// The index of the interface, in the network namespace of the socket.
    pub ifindex: Option<u32>,
    /// Further names and values.
    pub params: Vec<(&'static str, String)>,
}

impl DeviceDescription {
    /// Interface and queue: `eth0:3`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.interface, self.queue)
    }

    /// Interface, queue and index, as parameters.
    pub(crate) fn place(&self) -> Vec<(&'static str, String)> {
        let mut place = vec![("interface", self.interface.clone()), ("queue", self.queue.to_string())];
        place.extend(self.ifindex.map(|index| ("ifindex", index.to_string())));
        place
    }
}

/// Values that a loop may read in every round, without a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Free slots on the transmit ring. A frame takes one for each of its buffers.
    pub tx_room: usize,
    /// System calls made so far to move packets.
    pub calls: Calls,
}

/// The result of [`arm`](Device::arm), of a [handoff](crate::HandoffRx::arm) and of a
/// [forwarder](crate::Forwarder::arm).
#[derive(Debug)]
#[must_use]
pub enum Armed<'a> {
    /// There is something to poll for: do not sleep.
    Ready,
    /// The device, or the sender of a handoff, is gone for good. Close it.
    Gone,
    /// There is nothing to poll for now.
    Idle {
        /// Readable once there is something; `None` for a device that can only be polled.
        fd: Option<BorrowedFd<'a>>,
        /// Readable once a [`Waker`](crate::Waker) wakes the thread, if the device has one.
        waker_fd: Option<BorrowedFd<'a>>,
        /// The longest sleep. Call `arm` again after it: some events make no descriptor readable.
        at_most: Duration,
    },
}

/// One receive and one transmit queue of an interface.
///
/// One round of a loop: [`complete`](Self::complete), flush the bulk, [`receive`](Self::receive), handle the
/// packets, [`transmit`](Self::transmit). If nothing moved, [`arm`](Self::arm) and sleep. One thread polls a
/// device: the owner of the pool that it receives into.
///
/// `receive` (into a vector with capacity), `transmit`, `complete` and `state` do not allocate, format or
/// log. They count what they refuse.
pub trait Device: Send + fmt::Debug {
    /// Its name, address space and limits, which never change.
    fn info(&self) -> &DeviceInfo;

    /// Moves received packets into the vector, at most `budget` and at most its spare capacity; returns how
    /// many. Then it gives the device fresh buffers of `pool`, as many as its ring has room for. The first
    /// call therefore finds no packet, and makes the device ready to receive.
    ///
    /// A vector without capacity is first given some: for `budget` packets, or as many as the receive ring
    /// has slots. A vector with capacity never grows.
    ///
    /// Invalid packets, and packets without room, are counted and dropped. The pool's memory must be mapped
    /// in the device's domain: an unmapped buffer is counted and returns to its pool.
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize;

    /// Puts frames from the queue's front onto the transmit ring, while there is room for all buffers of the
    /// next frame; returns how many. They belong to the device until [`complete`](Self::complete) returns
    /// them. A frame that does not fit stays in the queue, whole. A frame that the device can never send
    /// (empty, too long, too many buffers, memory that it cannot access) is [refused](TxQueue::refuse).
    fn transmit(&mut self, queue: &mut TxQueue) -> usize;

    /// Moves at most `budget` sent frames into the bulk, which returns their buffers; returns how many.
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize;

    /// Room on the transmit ring, and system calls so far. Makes no system call.
    fn state(&self) -> QueueState;

    /// Checks before a sleep whether there is something to poll for. If not, it returns what to sleep on. The
    /// first descriptor becomes readable for every event between this check and the next `receive` or `arm`;
    /// the second for calls of a waker until the next `arm`.
    ///
    /// Buffers that other threads return to the pool do not make it readable: also sleep on the pool's
    /// [`wake_fd`](Bound::wake_fd). Buffers that this thread returned since the last `receive` signal
    /// nothing. If the device has too few buffers, `arm` gives it those, and there is something to poll for.
    /// [`wait`](super::DeviceExt::wait) does all this for one device.
    fn arm(&mut self, pool: &Bound) -> Armed<'_>;

    /// Its counters, and what is on its rings now. May make system calls.
    fn stats(&self) -> DeviceStats;

    /// The device as observers of the process see it. Makes no system call. By default: a `nic` with one
    /// queue, its [name](DeviceInfo::name), ring lengths and MTU.
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

/// Gives a vector without capacity room for a burst; returns whether it did. Called only when nothing was
/// received, so a busy round does not pay for it.
#[inline]
pub(crate) fn make_room(into: &mut Vec<XdpBuff>, budget: usize, rx_ring: usize) -> bool {
    let is_bare = into.capacity() == 0 && budget > 0;
    if is_bare {
        into.reserve_exact(budget.min(rx_ring));
    }
    is_bare
}

/// The device in a box. A device that already is a `Box<dyn Device>` is not boxed again: that would cost one
/// more call each time.
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
