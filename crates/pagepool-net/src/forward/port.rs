//! A port of a forwarder: a device, the pool that it receives into, and the queue of its transmit ring.

use std::time::Duration;

use pagepool::{Bound, Tag, XdpBuff, XdpFrame, XdpFrameBulk};

use super::egress::Egress;
use super::handler::PortId;
use super::handoff::HandoffRx;
use super::holder_tags::sent_by;
use super::published::PublishedPort;
use super::stats::ForwardStats;
use crate::device::{Armed, Calls, Device, DeviceExt, TxQueue, Wake};
use crate::sys::event::Sleep;

/// Rounds without a packet after which a port rests.
const REST_AFTER: u8 = 8;

/// The field order matters: the device returns its buffers before the mappings are released, and both before
/// the pool.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) id: PortId,
    pub(super) device: Box<dyn Device>,
    /// Frames that wait for the transmit ring, at most `most`.
    pub(super) waiting: TxQueue,
    most: usize,
    pub(super) egress: Egress,
    pub(super) inlets: Vec<HandoffRx>,
    pub(super) gone: bool,
    /// The tag of frames that wait here, in pools that record holders.
    to_send: Option<Tag>,
    /// It is gone, or names holders. One check for both: other ports pay nothing for names.
    is_rare: bool,
    /// Frames on the device's ring, or more: it is polled for completions while this is above 0.
    on_ring: usize,
    /// Rounds in a row that moved nothing.
    fruitless: u8,
    /// Whether it is in the lists of the [`PollList`](super::poll_list::PollList).
    pub(super) is_awake: bool,
    pub(super) is_queued: bool,
    /// The device's calls at the last [`new_calls`](Self::new_calls).
    called: Calls,
    pub(super) stats: ForwardStats,
    /// `None` if the process does not publish.
    pub(super) published: Option<PublishedPort>,
    pub(super) pool: Bound,
}

impl Port {
    /// At most one transmit ring of frames may wait, and at least one burst.
    pub(super) fn new(id: PortId, device: Box<dyn Device>, pool: Bound, burst: usize) -> Self {
        let most = device.info().tx_ring.max(burst);
        let on_ring = device.stats().in_tx as usize; // sent before the port was made
        let published = PublishedPort::new(&*device, &pool);
        Self {
            id,
            waiting: TxQueue::with_capacity(most, burst),
            most,
            egress: Egress::new(&*device),
            device,
            inlets: Vec::new(),
            gone: false,
            to_send: None,
            is_rare: false,
            on_ring,
            fruitless: 0,
            is_awake: false,
            is_queued: false,
            called: Calls::default(),
            stats: ForwardStats::default(),
            published,
            pool,
        }
    }

    /// Sets the size of bursts.
    pub(super) fn expect(&mut self, burst: usize) {
        self.most = self.most.max(burst);
        self.waiting.reserve(self.most, burst);
    }

    /// Takes back all sent frames, so that no full ring follows a slow round.
    pub(super) fn complete(&mut self, done: &mut XdpFrameBulk) -> usize {
        if self.gone || self.on_ring == 0 { 0 } else { self.take_back(done) }
    }

    #[inline]
    fn take_back(&mut self, done: &mut XdpFrameBulk) -> usize {
        let back = self.device.complete(done, usize::MAX);
        if back > 0 {
            self.fruitless = 0;
            self.on_ring = self.on_ring.saturating_sub(back);
        }
        back
    }

    /// Gives waiting frames to the device; returns how many it took.
    #[inline]
    fn give(&mut self) -> usize {
        let taken = self.device.transmit(&mut self.waiting);
        self.on_ring += taken;
        taken
    }

    /// Whether rounds may leave it out while other ports are busy: it moved nothing for some rounds, and has
    /// nothing to send.
    pub(super) fn rests(&self) -> bool {
        self.fruitless >= REST_AFTER && self.on_ring == 0 && self.waiting.is_empty() && self.inlets.is_empty()
    }

    /// The calls that its device made since the last `new_calls`.
    pub(super) fn new_calls(&mut self) -> Calls {
        let calls = self.device.state().calls;
        calls.since(&std::mem::replace(&mut self.called, calls))
    }

    pub(super) fn receive(&mut self, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        if self.gone {
            self.fruitless = REST_AFTER; // no packet ever comes
            return 0;
        }
        let received = self.device.receive(&self.pool, into, budget);
        self.fruitless = if received > 0 { 0 } else { self.fruitless.saturating_add(1) };
        self.stats.rx += received as u64;
        received
    }

    /// Tags frames to send with their holder, in pools that record holders.
    pub(super) fn name_holders(&mut self) {
        if self.to_send.is_none() {
            (self.to_send, self.is_rare) = (Some(sent_by(&self.device.info().name)), true);
        }
    }

    /// Sends a packet out of the port that received it; the device maps its memory. Returns the packet if it
    /// must be dropped.
    pub(super) fn send_back(&mut self, mut packet: XdpBuff) -> Result<(), XdpBuff> {
        self.stats.tx += 1;
        if !self.has_room(|tag| packet.set_tag(tag)) {
            return Err(packet);
        }
        self.waiting.push(packet);
        Ok(())
    }

    /// Sends a frame of another port, in any memory. Returns the frame if it must be dropped.
    pub(super) fn send_on(&mut self, frame: XdpFrame) -> Result<(), XdpFrame> {
        if self.is_rare {
            return self.send_on_named(frame);
        }
        self.stats.redirect_in += 1;
        if !self.has_room(|_| {}) {
            return Err(frame);
        }
        if let Some(frame) = self.egress.prepare(frame, &self.pool) {
            self.waiting.push(frame);
        }
        Ok(())
    }

    /// [`send_on`](Self::send_on) for a port that names frames, or is gone.
    #[cold]
    fn send_on_named(&mut self, frame: XdpFrame) -> Result<(), XdpFrame> {
        self.stats.redirect_in += 1;
        let mut name = None;
        if !self.has_room(|tag| name = Some(tag)) {
            return Err(frame);
        }
        if let Some(mut frame) = self.egress.prepare(frame, &self.pool) {
            name.into_iter().for_each(|tag| frame.set_tag(tag)); // the copy, if there is one
            self.waiting.push(frame);
        }
        Ok(())
    }

    /// Sends a burst that leaves by this port, if nothing waits and it needs no preparation; returns how many
    /// packets the device took. The rest waits: it fits, because nothing waited. Otherwise the burst stays in
    /// `packets`, and nothing is counted. `back`: the packets came in by this port.
    #[inline]
    pub(super) fn send_burst(&mut self, packets: &mut Vec<XdpBuff>, back: bool) -> usize {
        if self.is_rare || !self.waiting.is_empty() || !(back || self.egress.reuses(packets)) {
            return 0;
        }
        if back {
            self.stats.tx += packets.len() as u64;
        } else {
            self.stats.redirect_in += packets.len() as u64;
            self.egress.reused(packets.len());
        }
        self.waiting.push_burst(packets);
        self.give()
    }

    /// How many frames may be queued.
    pub(super) fn room(&self) -> usize {
        if self.gone { 0 } else { self.most.saturating_sub(self.waiting.len()) }
    }

    /// Whether one more frame may be queued; counts it if not. Called before a frame is copied. Calls `name`
    /// with the port's tag, if there is room and a tag.
    #[inline]
    fn has_room(&mut self, name: impl FnOnce(Tag)) -> bool {
        if self.is_rare {
            if self.gone {
                self.stats.tx_gone += 1;
                return false;
            }
            if let Some(tag) = self.to_send.filter(|_| self.waiting.len() < self.most) {
                name(tag);
            }
        }
        let has_room = self.waiting.len() < self.most;
        self.stats.tx_overflow += u64::from(!has_room);
        has_room
    }

    /// Takes frames that other threads handed over, at most `budget` from each; puts frames to drop into
    /// `done`.
    #[inline(never)] // in the round's loop it would take registers from every packet
    pub(super) fn take_handed_over(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        let mut taken = 0;
        for at in 0..self.inlets.len() {
            let until = taken + budget;
            while taken < until
                && let Some(frame) = self.inlets[at].take()
            {
                taken += 1;
                if let Err(frame) = self.send_on(frame) {
                    done.push(frame);
                }
            }
        }
        taken
    }

    /// Gives waiting frames to the device, while it has room. If some are left, it takes back sent frames and
    /// tries again, because other ports may have more for it in this round. Returns how many frames the
    /// device took and completed.
    pub(super) fn transmit(&mut self, done: &mut XdpFrameBulk) -> (usize, usize) {
        if self.gone || self.waiting.is_empty() {
            return (0, 0);
        }
        let (mut sent, mut completed) = (self.give(), 0);
        while !self.waiting.is_empty() {
            let back = self.take_back(done);
            if back == 0 {
                break;
            }
            completed += back;
            sent += self.give();
        }
        (sent, completed)
    }

    /// Waits on the device, and closes it if it is gone.
    pub(super) fn wait(&mut self, timeout: Duration) -> Wake {
        if self.gone {
            return Wake::Gone;
        }
        let wake = self.device.wait(&self.pool, timeout);
        if wake == Wake::Gone {
            self.close();
        }
        wake
    }

    /// Checks for something to do; if there is nothing, adds what to sleep on, and returns for how long.
    /// Closes a device that is gone. [`disarm`](Self::disarm) must follow.
    pub(super) fn arm(&mut self, sleep: &mut Sleep) -> (Wake, Duration) {
        let (mut wake, at_most) = self.arm_device(sleep);
        for inlet in &self.inlets {
            match inlet.sleep() {
                Some(fd) => sleep.add(Some(fd)),
                None => wake = Wake::Ready, // even if the device is gone: then the frame is dropped
            }
        }
        (wake, at_most)
    }

    fn arm_device(&mut self, sleep: &mut Sleep) -> (Wake, Duration) {
        if self.gone {
            return (Wake::Gone, Duration::MAX);
        }
        self.pool.acknowledge_wake(); // before `arm`, not after a sleep: see device/wait.rs
        match self.device.arm(&self.pool) {
            Armed::Ready => (Wake::Ready, Duration::ZERO),
            Armed::Idle { fd, waker_fd, at_most } => {
                sleep.add(fd);
                sleep.add(waker_fd);
                sleep.add(self.pool.wake_fd());
                (Wake::Timeout, at_most)
            }
            Armed::Gone => {
                self.close();
                (Wake::Gone, Duration::MAX)
            }
        }
    }

    /// Ends the sleep that `arm` began.
    pub(super) fn disarm(&mut self) {
        self.inlets.iter().for_each(HandoffRx::awake);
    }

    pub(super) fn show(&mut self) {
        let (paths, waiting) = (self.egress.stats(), self.waiting.buffers() as u64);
        if let Some(published) = &mut self.published {
            published.show(&*self.device, self.stats, paths, waiting);
        }
    }

    /// Closes it, and stops showing it.
    pub(super) fn end(&mut self) {
        self.close();
        self.published = None;
    }

    /// Returns all buffers of the device, and all waiting frames, to their pools.
    pub(super) fn close(&mut self) {
        self.device.close();
        self.stats.tx_gone += self.waiting.len() as u64;
        self.waiting.clear();
        self.egress.close();
        (self.gone, self.is_rare, self.on_ring) = (true, true, 0); // else it would never rest
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.close();
    }
}
