//! A TAP as a device: for machines, containers and guests without AF_XDP.
//!
//! What   what the kernel sends through the TAP's interface is received, straight into a pool's buffers; what
//!        is sent arrives at the interface. One read or write per packet, over all its buffers. Both copy, so
//!        there is no address space, and frames of any pool are sent from where they are.
//! Rings  none: `rx_ring` is the number of buffers kept for packets, and of the packets that wait in the
//!        kernel of a TAP that this program made. The kernel drops further packets, and counts them on the
//!        interface, from where `rx_no_buffer` is read. `tx_ring` is the number of buffers that were sent and
//!        not yet completed: a frame is sent within `transmit`.
//! MAC    none: the interface's address is the kernel's. A network stack behind the device takes another one.
//! Down   frames that the kernel refuses stay in the caller's queue, which tries again. Once the interface is
//!        deleted, reads, writes and the next `arm` tell.
//! Cost   receive: a read per packet, and one that finds nothing. Nothing is allocated.

mod receiver;
mod sender;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Bound, Error, XdpBuff, XdpFrameBulk};
use pagepool_link::sys::poll::look;
use pagepool_link::{LinkInfo, Tap};

use crate::device::device::{HEADERS, VLAN_TAG, make_room};
use crate::device::tx_slots::TxLimits;
use crate::device::{Armed, Calls, Device, DeviceDescription, DeviceInfo, DeviceStats, QueueState, TxQueue};
use crate::error::within;
use crate::interface::drops::Drops;
use crate::interface::lookup;
use receiver::Receiver;
use sender::Sender;

/// The limits of a sleep without the TAP's descriptor, because no buffer is free; and of one after the kernel
/// refused a frame: neither a deleted interface nor one that is up again ends it.
const WITHOUT_BUFFERS: Duration = Duration::from_secs(1);
const WHILE_REFUSED: Duration = Duration::from_millis(100);

/// The parameters of a TAP's device.
pub(crate) struct TapParams {
    pub(crate) rx_ring: u32,
    pub(crate) tx_ring: u32,
    /// Most buffers of a packet.
    pub(crate) max_buffers: usize,
    /// Most bytes of a packet in one buffer.
    pub(crate) capacity: usize,
}

/// The one queue of a TAP.
#[derive(Debug)]
pub(crate) struct TapDevice {
    info: DeviceInfo,
    /// `None` once the device is closed.
    tap: Option<Arc<Tap>>,
    link: LinkInfo,
    receiver: Receiver,
    sender: Sender,
    stats: DeviceStats,
    calls: Calls,
    gone: bool,
    drops: Drops,
}

impl TapDevice {
    /// A device over a TAP of this thread's network namespace.
    pub(crate) fn new(tap: Arc<Tap>, params: &TapParams) -> Result<Self, Error> {
        within("rx_ring", params.rx_ring, 1..=1 << 16)?;
        within("tx_ring", params.tx_ring, 1..=1 << 16)?;
        let mut netlink = lookup::netlink()?;
        let link = netlink.link(tap.name()).map_err(lookup::system)?;
        if tap.is_new() {
            netlink.set_queue(link.index, params.rx_ring).map_err(lookup::system)?;
        }
        let info = info(&tap, link.mtu as usize, params);
        let DeviceInfo { rx_ring, tx_ring, max_packet, max_buffers, .. } = info;
        Ok(Self {
            info,
            tap: Some(tap),
            receiver: Receiver::new(rx_ring, max_packet, max_buffers),
            sender: Sender::new(tx_ring, TxLimits { max_packet, max_buffers }),
            stats: DeviceStats::default(),
            calls: Calls::default(),
            gone: false,
            drops: Drops::since_now(netlink, link.index),
            link,
        })
    }
}

fn info(tap: &Tap, mtu: usize, params: &TapParams) -> DeviceInfo {
    let (rx_ring, tx_ring) = (params.rx_ring as usize, params.tx_ring as usize);
    // A packet with more buffers than there are slots would wait forever.
    let max_buffers = params.max_buffers.min(rx_ring).min(tx_ring);
    let max_packet = (mtu + HEADERS + VLAN_TAG).min(params.capacity * max_buffers);
    DeviceInfo {
        name: format!("{}:0", tap.name()),
        domain: None,
        rx_ring,
        tx_ring,
        max_packet,
        mtu: mtu.min(max_packet.saturating_sub(HEADERS)),
        max_buffers,
        mac: None,
        maps: false,
    }
}

impl Device for TapDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        let Some(tap) = self.tap.as_ref().filter(|_| !self.gone) else { return 0 };
        let Self { receiver, calls, stats, .. } = self;
        let mut receive = |into: &mut Vec<XdpBuff>| receiver.receive(tap.file(), into, budget, calls, stats);
        let (mut n, mut gone) = receive(into);
        if n == 0 && make_room(into, budget, self.info.rx_ring) {
            (n, gone) = receive(into);
        }
        receiver.refill(pool, stats);
        self.gone = gone;
        n
    }

    #[inline]
    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        let Some(tap) = self.tap.as_ref().filter(|_| !self.gone) else { return 0 };
        let (n, gone) = self.sender.transmit(tap.file(), queue, &mut self.calls, &mut self.stats);
        self.gone = gone;
        n
    }

    #[inline]
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        if self.gone || self.tap.is_none() {
            return 0;
        }
        let n = self.sender.complete(done, budget);
        self.stats.tx_completed += n as u64;
        n
    }

    fn state(&self) -> QueueState {
        QueueState { tx_room: self.sender.room(), calls: self.calls }
    }

    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        let Some(tap) = self.tap.as_ref().filter(|_| !self.gone) else { return Armed::Gone };
        let (readable, gone) = look(tap.file().as_fd());
        self.gone = gone;
        if gone {
            return Armed::Gone;
        }
        let before = self.receiver.held();
        self.receiver.refill(pool, &mut self.stats);
        let has_buffers = self.receiver.has_enough();
        let has_more = self.receiver.held() > before;
        if has_more || (readable && has_buffers) || self.sender.held() > 0 {
            return Armed::Ready;
        }
        let refused = if self.sender.was_refused() { WHILE_REFUSED } else { Duration::MAX };
        match has_buffers {
            true => Armed::Idle { fd: Some(tap.file().as_fd()), waker_fd: None, at_most: refused },
            // The pool wakes the thread. Packets that wait in the kernel would do so at once.
            false => Armed::Idle { fd: None, waker_fd: None, at_most: refused.min(WITHOUT_BUFFERS) },
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats {
            rx_no_buffer: if self.tap.is_some() { self.drops.count() } else { self.drops.last() },
            in_rx: self.receiver.held() as u64,
            in_tx: self.sender.held() as u64,
            calls: self.calls.count,
            call_ticks: self.calls.ticks,
            calls_refused: self.calls.refused,
            ..self.stats
        }
    }

    fn describe(&self) -> DeviceDescription {
        let DeviceInfo { rx_ring, tx_ring, mtu, .. } = self.info;
        let sizes = [("rx_ring", rx_ring), ("tx_ring", tx_ring), ("mtu", mtu)];
        let mut params = vec![("mode", "tap".to_owned())];
        params.extend(sizes.map(|(name, value)| (name, value.to_string())));
        let LinkInfo { name: interface, index, .. } = self.link.clone();
        DeviceDescription { kind: "nic", interface, queue: 0, ifindex: Some(index), params }
    }

    fn close(&mut self) {
        if self.tap.is_some() {
            self.drops.look();
        }
        // The kernel has no buffer of either: it copied.
        if self.tap.take().is_some() {
            self.stats.closed_with += (self.receiver.clear() + self.sender.clear()) as u64;
        }
    }
}
