//! The device: one AF_XDP socket, with its rings and the tables of the kernel's buffers.

mod description;
mod unbound_socket;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{Bound, DmaDomain, Error, MAX_FRAGS, XdpBuff, XdpFrameBulk};

pub(crate) use self::unbound_socket::UnboundSocket;
use super::bpf::redirect::{Attach, Redirect};
use super::bpf_batch::BpfBatch;
use super::grace_period::GracePeriod;
use super::params::{TxMode, XskParams};
use super::probe::Probe;
use super::queue::Queue;
use super::receiver::{Receiver, RxRings};
use super::sender::{Sender, TxRings};
use super::stats;
use super::sys::socket::{self as sys, KernelCounts, NO_COUNTS};
use super::tx_metadata::requests::{Requests, features_of};
use super::tx_metadata::{TxFeatures, TxMetadataMode, TxTimestamp};
use super::umem::Umem;
use crate::device::device::{HEADERS, VLAN_TAG, make_room};
use crate::device::mapping_cache::MappingCache;
use crate::device::tx_slots::TxLimits;
use crate::device::waker::{Wakened, Waker};
use crate::device::{
    Armed, Calls, Device, DeviceDescription, DeviceInfo, DeviceStats, KernelStats, QueueState, TxQueue,
};
use crate::error::parameter;
use crate::interface::lookup;
use crate::sys::errno;

/// The first limit of a sleep while frames are being sent, because the kernel wakes no thread for a
/// completion.
const WHILE_SENDING: Duration = Duration::from_millis(1);
/// The last limit of a sleep while frames stay on the transmit ring.
const WHILE_STUCK: Duration = Duration::from_millis(100);
/// The limit of any other sleep: a removed interface wakes no thread either.
const IDLE: Duration = Duration::from_secs(1);
/// Most calls in a row for a transmit ring. In copy mode a call sends the whole ring, or 32 packets before
/// Linux 6.17.
const KICKS: usize = 64;
/// How long `close` waits for packets that request their time, in copy mode; and its pauses. A queue below
/// the interface, or a card without a link, may hold them for long.
const FOR_TIMES: Duration = Duration::from_secs(1);
const FOR_TIMES_PAUSE: Duration = Duration::from_millis(1);

/// One queue of an interface over AF_XDP.
///
/// Threads and processes:
///
/// * Any thread may create a [`Umem`], attach a [`Redirect`], open devices in their interface's network
///   namespace, several over one `Umem` at once, and drop frames and buffers of any device.
/// * One thread polls a device: receives, transmits, completes, waits, reads statistics, closes. It owns the
///   pool that it receives into, and may send frames of any pool over the `Umem`. No lock is taken.
/// * Other threads poll other devices, over this `Umem` or another. A device may move to another thread
///   between polls, but two threads never share one: its rings have one producer and one consumer. A queue
///   has one device.
/// * A thread in another network namespace may poll a device, which then sends by the ring: see [`TxMode`].
/// * Another process creates its own `Umem`. A child of `fork` that neither execs nor exits keeps the socket,
///   and with it the queue.
///
/// In copy mode the kernel writes the times that packets [request](crate::TxMetadata::timestamp) even after
/// the socket is closed. [`close`](Device::close) waits for them up to a second. Then it leaks the buffers
/// that are still being sent: they stay in [`in_tx`](DeviceStats::in_tx).
///
/// The kernel fills chunks up to their end, so [`open`](Self::open) refuses a pool whose tailroom is in the
/// way. Packets are as XDP sees them. From a veth's other end they arrive without a checksum, without VLAN
/// tags, or longer than the MTU, unless that end's offloads are off:
/// [`offload_faults`](pagepool_link::offload_faults) names the `ethtool -K` line. A packet without a checksum
/// that is sent back or on is dropped by its receiver.
///
/// Metadata of your own XDP program is right before the packet: see [`XdpBuff::adjust_meta`].
///
/// ```no_run
/// // It needs root and an interface.
/// use pagepool::{Arena, ArenaParams, XdpFrameBulk, Pool, PoolParams};
/// use pagepool_net::{Attach, Device, Redirect, TxQueue, Umem, UmemParams, XskDevice, XskParams, swap_macs};
///
/// let arena = Arena::new(ArenaParams { commit_all: true, ..Default::default() })?;
/// let umem = Umem::new(UmemParams::default(), &arena)?;
/// let params = PoolParams { headroom: 256, wakeup: true, ..Default::default() };
/// let params = PoolParams { domains: vec![umem.clone()], ..params };
/// let pool = Pool::new(params, arena)?.bind();
/// let redirect = Some(Redirect::attach("veth0", Attach::Auto, false)?);
/// let params = XskParams { interface: "veth0".into(), redirect, ..Default::default() };
/// let mut device = XskDevice::open(params, &umem, &pool)?;
///
/// let (mut packets, mut out, mut done) = (Vec::with_capacity(64), TxQueue::new(), XdpFrameBulk::new());
/// loop {
///     device.receive(&pool, &mut packets, 64);
///     packets.iter_mut().for_each(|packet| swap_macs(packet.data_mut())); // back to where it came from
///     out.push_burst(&mut packets);
///     device.transmit(&mut out);
///     device.complete(&mut done, 64);
///     done.flush();
/// }
/// # #[expect(unreachable_code)]
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct XskDevice {
    info: DeviceInfo,
    mappings: MappingCache,
    umem: Arc<Umem>,
    queue: Queue,
    /// `None` once the device is closed.
    open: Option<Open>,
    redirect: Option<Arc<Redirect>>,
    /// The socket's key in the redirect's map.
    key: u32,
    receiver: Receiver,
    sender: Sender,
    zero_copy: bool,
    /// What does not change.
    description: DeviceDescription,
    /// Where another owner's XDP program runs, if the socket is in its map.
    theirs: Option<Attach>,
    /// Why no BPF program sends.
    why_ring: Option<String>,
    stats: DeviceStats,
    /// The kernel's counts when the socket was closed.
    last: KernelCounts,
    calls: Calls,
    gone: bool,
    /// Frames taken and completed before the last sleep, and the limit of a sleep while sending.
    naps: (u64, Duration),
    wakened: Wakened,
}

/// A socket with our ends of its rings.
#[derive(Debug)]
struct Open {
    fd: Arc<OwnedFd>,
    rx: RxRings,
    /// Of the socket, or of the BPF program.
    tx: TxRings,
    /// The BPF program that sends, if any.
    batch: Option<BpfBatch>,
    zero_copy: bool,
    /// Whether calls poll the driver, as every idle round then does.
    busy: bool,
    /// Only with zero copy.
    probe: Option<Probe>,
    /// Only with a redirect.
    grace_period: Option<GracePeriod>,
}

impl XskDevice {
    /// Opens a queue of an interface in this thread's network namespace, for polling with a pool of this
    /// thread.
    ///
    /// Refuses a pool that the kernel cannot fill, as [`check_pool`](Self::check_pool) does, such as one
    /// without the UMEM in its domains.
    ///
    /// The device has no buffers before its first [`receive`](Device::receive), without which some drivers
    /// leak: call it even if you only transmit. If the [redirect](XskParams::redirect) already redirects,
    /// packets are lost until then.
    pub fn open(params: XskParams, umem: &Arc<Umem>, pool: &Bound) -> Result<Self, Error> {
        let key = |redirect: &Arc<Redirect>| redirect.key(params.queue, params.map_key);
        params.redirect.as_ref().map_or(Ok(params.queue), key)?; // refused before anything is opened
        let (redirect, map_key) = (params.redirect.clone(), params.map_key);
        let mut this = Self::bind(UnboundSocket::make(params, umem)?)?;
        this.check_pool(pool)?;
        redirect.map_or(Ok(()), |redirect| this.join(redirect, map_key, Redirect::insert))?;
        Ok(this)
    }

    /// Binds a socket to its queue, without a redirect.
    pub(crate) fn bind(socket: UnboundSocket) -> Result<Self, Error> {
        socket.bind()?;
        let UnboundSocket { params, umem, fd, queue, link, buffers, rx, mut tx, batch, why_ring, .. } =
            socket;
        let zero_copy = sys::is_zero_copy(fd.as_fd());
        let mut batch = batch.filter(|_| !zero_copy);
        batch.iter_mut().for_each(|batch| batch.swap_rings(&mut tx));
        let busy = params.busy_poll.is_some();
        let open = Open { fd, rx, tx, batch, zero_copy, busy, probe: None, grace_period: None };
        // The receiver behind a veth or a BPF program accepts one tag (include/linux/netdevice.h, v7.3:
        // __is_skb_forwardable, xdp_ok_fwd_dev); drivers of cards and TAPs accept two.
        let two_tags = open.batch.is_none() && link.kind.as_deref() != Some("veth");
        let mut this = Self::new(&params, &umem, queue, open, buffers as usize, link.mtu, two_tags);
        this.info.mac = link.mac.map(|mac| mac.0);
        this.why_ring = why_ring.filter(|_| !zero_copy);
        if umem.params().tx_metadata != TxMetadataMode::Off {
            let features = features_of(queue.index, umem.params().tx_metadata, zero_copy)?;
            this.sender.serve(Requests::new(features, params.tx_ring as usize));
        }
        // From here on a drop closes the socket in the right order.
        if let Some(open) = this.open.as_mut().filter(|open| open.zero_copy) {
            open.probe = Some(umem.probe()?);
        }
        if zero_copy && params.tx_mode == TxMode::BpfBatch {
            return Err(parameter(
                "tx_mode",
                "bpf-batch",
                "ring or auto with zero copy; or use XskMode::Copy",
            ));
        }
        Ok(this)
    }

    /// Puts the socket into a redirect's map with `insert`.
    pub(crate) fn join(
        &mut self,
        redirect: Arc<Redirect>,
        map_key: Option<u32>,
        insert: impl Fn(&Redirect, u32, BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        // The kernel drops packets that are redirected to a socket of another interface.
        if let Some((name, _)) = redirect.interface().filter(|&(_, index)| index != self.queue.index) {
            let must_be = "of the device's interface";
            return Err(parameter("redirect", format!("of {name}"), must_be));
        }
        let key = redirect.key(self.queue.number, map_key)?;
        insert(&redirect, key, open.fd.as_fd())?;
        open.grace_period = Some(GracePeriod::new());
        if redirect.interface().is_none() {
            self.theirs = lookup::xdp_mode_on(self.queue.index).map(Attach::of);
        }
        (self.redirect, self.key) = (Some(redirect), key);
        Ok(())
    }

    fn new(
        params: &XskParams,
        umem: &Arc<Umem>,
        queue: Queue,
        open: Open,
        buffers: usize,
        mtu: u32,
        two_tags: bool,
    ) -> Self {
        let layout = umem.layout();
        let most_buffers = if umem.params().multi_buffer { MAX_FRAGS + 1 } else { 1 };
        // a packet with more buffers than the ring has slots would wait forever
        let max_buffers = most_buffers.min(params.tx_ring as usize);
        // Beyond the MTU one VLAN tag fits, or two (802.1ad).
        let longest = mtu as usize + HEADERS + if two_tags { VLAN_TAG } else { 0 };
        let max_packet = longest.min(umem.packet_capacity() * max_buffers);
        let copied_from = (!open.zero_copy).then(|| umem.base());
        let (slots, domain) = (params.tx_ring as usize, umem.clone() as Arc<dyn DmaDomain>);
        Self {
            info: DeviceInfo {
                name: format!("{}:{}", params.interface, params.queue),
                domain: Some(domain.clone()),
                rx_ring: buffers,
                tx_ring: slots,
                max_packet,
                mtu: (mtu as usize).min(max_packet.saturating_sub(HEADERS)),
                max_buffers,
                mac: None,
                maps: false,
            },
            mappings: MappingCache::new(domain),
            umem: umem.clone(),
            queue,
            zero_copy: open.zero_copy,
            description: description::fixed(params, queue, mtu, umem.layout().chunk, open.zero_copy),
            theirs: None,
            why_ring: None,
            open: Some(open),
            redirect: None,
            key: queue.number,
            receiver: Receiver::new(layout, buffers, most_buffers),
            sender: Sender::new(layout, copied_from, slots, TxLimits { max_packet, max_buffers }),
            stats: DeviceStats::default(),
            last: NO_COUNTS,
            calls: Calls::default(),
            gone: false,
            naps: (0, WHILE_SENDING),
            wakened: Wakened::default(),
        }
    }

    /// A device over rings whose other ends the caller has, like those of a zero-copy driver that polls by
    /// itself.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn over_rings(
        params: &XskParams,
        umem: &Arc<Umem>,
        fd: OwnedFd,
        (rx, tx): (RxRings, TxRings),
        mtu: u32,
    ) -> Self {
        let (fd, batch, probe, grace_period) = (Arc::new(fd), None, None, None);
        let open = Open { fd, rx, tx, batch, zero_copy: true, busy: false, probe, grace_period };
        let queue = Queue { namespace: 0, index: 0, number: params.queue };
        let mut this = Self::new(params, umem, queue, open, params.rx_ring as usize, mtu, true);
        if umem.params().tx_metadata != TxMetadataMode::Off {
            let all = TxFeatures { checksum: true, timestamp: true, launch_time: true };
            this.sender.serve(Requests::new(all, params.tx_ring as usize));
        }
        this
    }

    pub(super) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Whether the driver uses zero copy.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// How packets are sent now ([`TxMode`]), and why not by BPF batch if [`TxMode::Auto`] would use it or
    /// its program stopped.
    pub fn tx_mode(&self) -> (TxMode, Option<String>) {
        let batch = self.open.as_ref().and_then(|open| open.batch.as_ref());
        match batch.map(BpfBatch::stopped) {
            Some(None) => (TxMode::BpfBatch, None),
            Some(Some(why)) => (TxMode::Ring, Some(why.to_string())),
            None => (TxMode::Ring, self.why_ring.clone()),
        }
    }

    /// The requests of [`TxMetadata`](crate::TxMetadata) that the device serves; none without the UMEM's
    /// [`tx_metadata`](super::UmemParams::tx_metadata). With zero copy the driver serves them (Linux 6.8). In
    /// copy mode the driver or the kernel computes checksums, and timestamps are of `CLOCK_TAI`; virtio_net
    /// serves none before Linux 6.18.
    pub fn tx_features(&self) -> TxFeatures {
        self.sender.features()
    }

    /// Appends the TX timestamps of packets that [requested](crate::TxMetadata::timestamp) one and that
    /// [`complete`](Device::complete) took back, oldest first. Returns how many were lost since the last
    /// call: the device keeps one per slot of the TX ring. A packet whose driver wrote no time has none.
    ///
    /// On the polling thread; no system call. Allocates only if the vector must grow.
    ///
    /// ```no_run
    /// // It needs root, and an interface.
    /// use std::time::Duration;
    ///
    /// use pagepool::{Bound, XdpBuff, XdpFrameBulk};
    /// use pagepool_net::{Device, DeviceExt, TxMetadata, TxQueue, TxTimestamp, Wake, XskDevice};
    ///
    /// /// Sends a packet, and says when it left.
    /// fn send(device: &mut XskDevice, pool: &Bound, mut packet: XdpBuff) -> Option<TxTimestamp> {
    ///     assert!(device.tx_features().timestamp, "TxMetadataMode::On, and a driver with a clock");
    ///     TxMetadata { timestamp: Some(1), ..Default::default() }.write(&mut packet).ok()?;
    ///     device.transmit(&mut TxQueue::from([packet]));
    ///     let (mut done, mut times) = (XdpFrameBulk::new(), Vec::new());
    ///     while device.complete(&mut done, 64) == 0 {
    ///         if device.wait(pool, Duration::from_secs(1)) == Wake::Gone {
    ///             break;
    ///         }
    ///     }
    ///     device.take_tx_timestamps(&mut times);
    ///     times.pop()
    /// }
    /// # let _ = send;
    /// ```
    pub fn take_tx_timestamps(&mut self, into: &mut Vec<TxTimestamp>) -> u64 {
        self.sender.requests().map_or(0, |requests| requests.take(into))
    }

    /// Makes a waker, by which any thread wakes the one that polls this device.
    ///
    /// For loops that take other work than packets. A wake between two waits counts for the second, so none
    /// is lost. To hand packets to a [`Forwarder`](crate::Forwarder), use [`handoff`](crate::handoff), which
    /// wakes it. The first call makes an event counter, which fails without a free descriptor.
    ///
    /// ```no_run
    /// // It needs root and an interface.
    /// use std::{sync::mpsc, thread, time::Duration};
    ///
    /// use pagepool_net::{Device, DeviceExt, Wake, XskDevice};
    ///
    /// let (mut device, pool) = XskDevice::simple("eth0", 0)?;
    /// let (waker, (jobs, todo)) = (device.waker()?, mpsc::channel());
    /// thread::spawn(move || {
    ///     let _ = jobs.send("a job"); // first the work,
    ///     waker.wake(); // then the call
    /// });
    /// let mut packets = Vec::new();
    /// while device.wait(&pool, Duration::from_secs(1)) != Wake::Gone {
    ///     device.receive(&pool, &mut packets, 64);
    ///     packets.clear();
    ///     todo.try_iter().for_each(|job| println!("{job}"));
    /// }
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn waker(&self) -> Result<Waker, Error> {
        self.wakened.waker()
    }

    /// The redirect from which the device gets packets.
    pub fn redirect(&self) -> Option<&Arc<Redirect>> {
        self.redirect.as_ref()
    }

    /// The id of the driver's queue that [busy polling](crate::BusyPoll) polls (`SO_INCOMING_NAPI_ID`). With
    /// zero copy the driver reports it. In copy mode the kernel learns it from the first packet up to Linux
    /// 6.14 (net/xdp/xsk.c:xsk_rcv_check), and not at all since. A system call.
    pub fn napi_id(&self) -> Option<u32> {
        self.open.as_ref().and_then(|open| sys::napi_id(open.fd.as_fd()))
    }

    /// The kernel's counts, how full the rings are, and where the buffers are. A system call.
    pub fn kernel_stats(&self) -> KernelStats {
        self.kernel_stats_of(self.kernel_counts())
    }

    fn kernel_stats_of(&self, counts: KernelCounts) -> KernelStats {
        let rx = self.open.as_ref().map_or((0, 0), |open| (open.rx.fill.level(), open.rx.received.level()));
        let tx = self.open.as_ref().map_or((0, 0), Open::tx_levels);
        stats::kernel_stats(counts, (self.receiver.held(), rx), (self.sender.held(), tx))
    }

    fn kernel_counts(&self) -> KernelCounts {
        self.open.as_ref().and_then(|open| sys::statistics(open.fd.as_fd()).ok()).unwrap_or(self.last)
    }

    /// In copy mode, waits until the kernel writes no more times, which it does when it frees a packet. False
    /// if that takes too long. Costs nothing if no packet requests a time.
    fn await_times(&mut self) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| !open.zero_copy) else { return true };
        let (mut done, start) = (XdpFrameBulk::new(), Instant::now());
        while self.sender.awaited_times() > 0 {
            // Even if the interface is gone: the kernel completes while the ring is mapped.
            self.sender.complete(&mut open.tx, &mut done, usize::MAX, &mut self.stats);
            done.flush();
            // The kernel never took what is on the ring. After a driver drops a packet, the level shows
            // nothing, because the kernel updates it late.
            if self.sender.held() <= open.tx.send.level() && self.calls.dropped == 0 {
                return true;
            }
            if start.elapsed() >= FOR_TIMES {
                return self.sender.awaited_times() == 0;
            }
            std::thread::sleep(FOR_TIMES_PAUSE);
        }
        true
    }

    /// Whether the interface is gone or the device closed.
    fn look(&mut self) -> bool {
        self.gone |= self.open.as_ref().is_none_or(|open| sys::take_error(open.fd.as_fd()).is_some());
        self.gone
    }

    /// How long to sleep: briefly while sending, then twice as long after each sleep without progress.
    fn nap(&mut self) -> Duration {
        let moved = self.stats.tx_packets + self.stats.tx_completed;
        let (before, nap) = self.naps;
        let nap = if moved == before { (2 * nap).min(WHILE_STUCK) } else { WHILE_SENDING };
        self.naps = (moved, nap);
        if self.sender.held() > 0 { nap } else { IDLE }
    }

    #[inline]
    fn kick_transmit(&mut self) {
        if self.sender.held() > 0
            && let Some(open) = self.open.as_mut().filter(|_| !self.gone)
        {
            self.gone = !open.kick_transmit(&mut self.calls);
        }
    }
}

impl Open {
    /// Makes the kernel send the transmit ring. Returns whether the interface exists.
    fn kick_transmit(&mut self, calls: &mut Calls) -> bool {
        let Self { fd, tx, batch, zero_copy, busy, .. } = self;
        let kick =
            |rings: &TxRings, calls: &mut Calls| kick_ring(rings, fd.as_fd(), *zero_copy, *busy, calls);
        match batch {
            None => kick(tx, calls),
            Some(batch) => batch.send(fd.as_fd(), calls, kick),
        }
    }

    /// Notifies the kernel of the fill ring; with busy polling, also receives after an idle round. Returns
    /// whether the interface exists.
    #[inline]
    fn kick_receive(&mut self, idle: bool, calls: &mut Calls) -> bool {
        if !((self.busy && idle) || self.rx.fill.needs_wakeup()) {
            return true;
        }
        let made = calls.make(|| sys::kick_receive(self.fd.as_fd()));
        made.err().is_none_or(|error| !is_gone(self.fd.as_fd(), &error))
    }

    /// Buffers that wait to be sent, and that were sent.
    fn tx_levels(&self) -> (usize, usize) {
        let (send, done) = self.batch.as_ref().map_or((0, 0), BpfBatch::kernel_levels);
        (self.tx.send.level() + send, self.tx.done.level() + done)
    }

    fn has_some(&self) -> bool {
        self.rx.received.level() > 0 || self.tx.done.level() > 0
    }
}

/// Calls the kernel while the transmit ring has entries, the kernel requests calls, and they make progress.
/// Returns whether the interface exists.
fn kick_ring(rings: &TxRings, fd: BorrowedFd<'_>, zero_copy: bool, busy: bool, calls: &mut Calls) -> bool {
    for _ in 0..KICKS {
        let pending = rings.send.level();
        // A zero-copy driver completes in its poll, which the call starts.
        let wanted = pending > 0 || (zero_copy && rings.done.level() == 0);
        if !wanted || !(busy || rings.send.needs_wakeup()) {
            break;
        }
        if let Err(error) = calls.make(|| sys::kick_transmit(fd)) {
            if is_gone(fd, &error) {
                return false;
            }
            calls.refused += u64::from(is_refusal(&error));
            calls.dropped += u64::from(!zero_copy && is_drop(&error));
        }
        if rings.send.level() >= pending {
            break; // no room in the kernel now, or the interface is down: the next round tries again
        }
    }
    true
}

/// Whether an error means that the socket is no longer bound. An interface that is down is not gone. Drivers
/// also return ENXIO without an XDP program; the kernel sets an error on a socket whose interface it removes.
fn is_gone(fd: BorrowedFd<'_>, error: &std::io::Error) -> bool {
    match error.raw_os_error() {
        Some(errno::ENODEV) => true,
        Some(errno::ENXIO) => sys::take_error(fd).is_some(),
        _ => false,
    }
}

/// Whether the driver refuses until something about the interface changes.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EINVAL | errno::ENXIO | errno::ENETDOWN))
}

/// Whether a call in copy mode ended at a packet that the driver dropped: completed but not sent.
fn is_drop(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(errno::EBUSY)
}

impl Device for XskDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn receive(&mut self, pool: &Bound, into: &mut Vec<XdpBuff>, budget: usize) -> usize {
        let Some(open) = self.open.as_mut().filter(|_| !self.gone) else { return 0 };
        let mut n = self.receiver.receive(&mut open.rx, into, budget, &mut self.stats);
        if n == 0 && make_room(into, budget, self.info.rx_ring) {
            n = self.receiver.receive(&mut open.rx, into, budget, &mut self.stats);
        }
        self.receiver.refill(&mut open.rx, pool, &mut self.mappings, &mut self.stats);
        self.gone = !open.kick_receive(n == 0, &mut self.calls);
        n
    }

    #[inline]
    fn transmit(&mut self, queue: &mut TxQueue) -> usize {
        let Some(open) = self.open.as_mut().filter(|_| !self.gone) else { return 0 };
        let n = self.sender.transmit(&mut open.tx, queue, &mut self.mappings, &mut self.stats);
        self.kick_transmit();
        n
    }

    #[inline]
    fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        self.kick_transmit(); // the kernel may have had no room in an earlier call
        let Some(open) = self.open.as_mut().filter(|_| !self.gone) else { return 0 };
        self.sender.complete(&mut open.tx, done, budget, &mut self.stats)
    }

    fn state(&self) -> QueueState {
        QueueState { tx_room: self.sender.room(), calls: self.calls }
    }

    fn arm(&mut self, pool: &Bound) -> Armed<'_> {
        if self.look() {
            return Armed::Gone;
        }
        if self.wakened.take() {
            return Armed::Ready;
        }
        // During the sleep no other thread calls the kernel.
        self.kick_transmit();
        let at_most = self.nap();
        let Some(open) = self.open.as_mut().filter(|_| !self.gone) else { return Armed::Gone };
        let before = self.receiver.held();
        self.receiver.refill(&mut open.rx, pool, &mut self.mappings, &mut self.stats);
        if self.receiver.held() > before {
            return Armed::Ready; // the next round notifies the kernel of them
        }
        if open.busy && !open.has_some() {
            // `poll` does not poll the driver, unless all sockets are set to.
            self.gone = !open.kick_receive(true, &mut self.calls);
        }
        if open.has_some() {
            return Armed::Ready;
        }
        if !self.wakened.sleep() {
            return Armed::Ready;
        }
        Armed::Idle { fd: Some(open.fd.as_fd()), waker_fd: self.wakened.event(), at_most }
    }

    fn stats(&self) -> DeviceStats {
        let kernel = self.kernel_counts();
        let (rx_no_buffer, rx_too_long) =
            stats::lost_before_the_ring(kernel, self.info.max_buffers > 1, self.zero_copy);
        DeviceStats {
            rx_no_buffer,
            rx_too_long,
            in_rx: self.receiver.held() as u64,
            in_tx: self.sender.held() as u64,
            calls: self.calls.count,
            call_ticks: self.calls.ticks,
            calls_refused: self.calls.refused,
            tx_dropped: self.calls.dropped,
            kernel: Some(self.kernel_stats_of(kernel)),
            ..self.stats
        }
    }

    fn describe(&self) -> DeviceDescription {
        let (attach, why) = self.redirect.as_ref().and_then(|redirect| redirect.mode()).unzip();
        let attach = (attach.or(self.theirs), why.flatten());
        description::now(self.description.clone(), self.zero_copy, self.tx_mode().0, attach)
    }

    fn close(&mut self) {
        let no_times = self.await_times();
        let Some(Open { fd, rx, tx, batch, probe, grace_period, .. }) = self.open.take() else { return };
        self.last = sys::statistics(fd.as_fd()).unwrap_or(self.last);
        // Dropped at the end, perhaps with its program: drivers then reset the queues.
        let redirect = self.redirect.take();
        redirect.iter().for_each(|redirect| redirect.remove(self.key, fd.as_fd()));
        drop((rx, tx, batch)); // before the socket: the kernel keeps one whose rings are mapped
        self.umem.close(fd);
        // After the close, which starts the teardown: the queue is free earlier.
        let over = grace_period.is_none_or(GracePeriod::wait);
        let over = over && probe.is_none_or(|probe| probe.wait(self.queue));
        // If the kernel may still write: leaked, and counted as out forever.
        match over {
            true => self.stats.closed_with += self.receiver.clear() as u64,
            false => self.receiver.forget(),
        }
        match over && no_times {
            true => self.stats.closed_with += self.sender.clear() as u64,
            false => self.sender.forget(),
        }
    }
}

impl Drop for XskDevice {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceExt, Wake};
    use crate::interface::lookup;
    use crate::sys::bpf::{self, Insn};
    use crate::sys::socket;
    use crate::veth;
    use crate::{Attach, BusyPoll, UmemParams, XskMode};
    use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpFrame};
    use pagepool_lab::FrameSocket;
    use pagepool_testing::FarEnd;
    use std::os::fd::AsRawFd;

    /// A device over 1 MiB in pages of 2 KiB, with eight buffers, and its pool.
    fn open() -> (XskDevice, Bound) {
        open_over(Redirect::attach("near0", Attach::Auto, false).unwrap())
    }

    fn open_over(redirect: Arc<Redirect>) -> (XskDevice, Bound) {
        open_in(&small_pages(), redirect)
    }

    fn small_pages() -> Arc<Arena> {
        let (max_bytes, page_size) = (1 << 20, 2048);
        let params = ArenaParams { max_bytes, page_size, commit_all: true, ..Default::default() };
        Arena::new(params).unwrap()
    }

    fn open_in(arena: &Arc<Arena>, redirect: Arc<Redirect>) -> (XskDevice, Bound) {
        let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, arena).unwrap();
        let params = PoolParams { domains: vec![umem.clone()], colour: false, ..Default::default() };
        let pool = Pool::new(params, arena.clone()).unwrap().bind();
        let redirect = Some(redirect);
        let params =
            XskParams { interface: "near0".into(), rx_ring: 8, tx_ring: 8, redirect, ..Default::default() };
        (XskDevice::open(params, &umem, &pool).unwrap(), pool)
    }

    /// A device over whole pages, and its pool.
    fn open_pages(umem: UmemParams, tx_ring: u32) -> (XskDevice, Bound) {
        open_pages_by(TxMode::Auto, umem, tx_ring)
    }

    fn open_pages_by(tx_mode: TxMode, umem: UmemParams, tx_ring: u32) -> (XskDevice, Bound) {
        let redirect = Some(Redirect::attach("near0", Attach::Auto, umem.multi_buffer).unwrap());
        let params = ArenaParams { max_bytes: 1 << 20, commit_all: true, ..Default::default() };
        let arena = Arena::new(params).unwrap();
        let umem = Umem::new(umem, &arena).unwrap();
        let params = PoolParams { domains: vec![umem.clone()], colour: false, ..Default::default() };
        let pool = Pool::new(params, arena).unwrap().bind();
        let params = XskParams {
            interface: "near0".into(),
            rx_ring: 8,
            tx_ring,
            redirect,
            tx_mode,
            ..Default::default()
        };
        (XskDevice::open(params, &umem, &pool).unwrap(), pool)
    }

    #[test]
    fn a_packet_longer_than_the_ring_blocks_no_other() {
        if let Some(why) = veth::missing() {
            return println!("SKIP small rings: {why}");
        }
        let _veth = veth::Veth::new(1, 9000);
        let umem = UmemParams { multi_buffer: true, mode: XskMode::Copy, ..Default::default() };
        let (mut device, pool) = open_pages(umem, 4);
        let frame = |buffers: usize| {
            let mut packet = XdpBuff::new(pool.alloc_page().unwrap(), 0, 100).unwrap();
            (1..buffers).for_each(|_| packet.add_frag(pool.alloc_page().unwrap(), 0, 100).unwrap());
            XdpFrame::from(packet)
        };
        let mut queue = TxQueue::from([frame(5), frame(4)]);
        assert_eq!((device.transmit(&mut queue), queue.refused(), queue.len()), (1, 1, 0));
        let stats = device.stats();
        assert_eq!((stats.tx_too_long, stats.tx_packets, device.info().max_buffers), (1, 1, 4));
    }

    /// Sends only packets that need no frames.
    fn short_way(device: &mut XskDevice, packets: &mut Vec<XdpBuff>) -> usize {
        let Some(open) = &mut device.open else { return 0 };
        let n =
            device.sender.transmit_packets(&mut open.tx, packets, &mut device.mappings, &mut device.stats);
        open.tx.send.submit();
        device.kick_transmit();
        n
    }

    #[test]
    fn packets_in_whole_pages_go_the_short_way_and_no_others() {
        if let Some(why) = veth::missing() {
            return println!("SKIP packets without frames: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let (mut device, pool) = open_pages(UmemParams { mode: XskMode::Copy, ..Default::default() }, 8);
        let (mut far, mut done) = (veth.far_end(0), XdpFrameBulk::new());
        let packet = |len| {
            let mut packet = XdpBuff::new(pool.alloc_page().unwrap(), 100, len).unwrap();
            packet.data_mut().fill(len as u8);
            packet
        };
        let mut packets = vec![packet(60), packet(61), packet(1600), packet(62)];
        assert_eq!((short_way(&mut device, &mut packets), packets.len()), (2, 2), "up to one to be refused");
        let mut queue = TxQueue::new();
        queue.push_burst(&mut packets);
        assert_eq!((device.transmit(&mut queue), queue.refused()), (1, 1));
        for len in [60, 61, 62] {
            assert_eq!(far.next(), vec![len as u8; len]);
        }
        let stats = device.stats();
        assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_too_long, stats.in_tx), (3, 183, 1, 3));
        packets.extend((0..20).map(|_| packet(64)));
        assert_eq!((short_way(&mut device, &mut packets), device.stats().in_tx), (5, 8), "as many as slots");
        let start = Instant::now();
        while device.stats().in_tx > 0 && start.elapsed() < veth::LIMIT {
            device.complete(&mut done, 3);
        }
        assert_eq!((device.stats().tx_completed, device.stats().tx_bad_descriptor), (8, 0));
        assert_eq!(short_way(&mut device, &mut packets), 8);
        drop(done);
        device.close();
        assert_eq!((device.stats().closed_with, pool.inflight().out), (8, 7), "7 are in the vector still");
        assert_eq!((short_way(&mut device, &mut packets), packets.len()), (0, 7));
    }

    #[test]
    fn a_call_sends_all_of_the_ring() {
        if let Some(why) = veth::missing() {
            return println!("SKIP transmit budget: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let umem = UmemParams { mode: XskMode::Copy, ..Default::default() };
        let (mut device, pool) = open_pages_by(TxMode::Ring, umem, 128);
        if !sys::raise_transmit_budget(device.open.as_ref().unwrap().fd.as_fd(), 128) {
            return println!("SKIP transmit budget: it needs Linux 6.17");
        }
        let frame = |_| XdpFrame::from(XdpBuff::new(pool.alloc_page().unwrap(), 0, 100).unwrap());
        assert_eq!(device.transmit(&mut (0..128).map(frame).collect()), 128);
        assert_eq!(
            (device.calls.count, device.kernel_stats().tx_in_kernel),
            (1, 0),
            "{:?}",
            device.kernel_stats()
        );
    }

    #[test]
    fn what_the_kernel_discards_silently_is_taken_back() {
        if let Some(why) = veth::missing() {
            return println!("SKIP discarded descriptors: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let arena = small_pages();
        let redirect = Redirect::attach("near0", Attach::Auto, false).unwrap();
        let (mut device, pool) = open_in(&arena, redirect);
        let XskDevice { receiver, mappings, open, .. } = &mut device;
        let fill = &mut open.as_mut().unwrap().rx.fill;
        for _ in 0..3 {
            assert!(receiver.give(fill, &pool, mappings));
            fill.cancel(1);
            fill.push([1 << 40]); // far beyond the memory
        }
        let mut packets = Vec::with_capacity(8);
        device.receive(&pool, &mut packets, 8);
        let mut far = veth.far_end(0);
        (0..8).for_each(|_| assert!(far.send(&[7; 60])));
        while packets.len() < 5 && device.wait(&pool, veth::LIMIT) == Wake::Ready {
            device.receive(&pool, &mut packets, 8);
        }
        assert_eq!(
            (device.stats().in_rx, device.kernel_stats().rx_in_kernel),
            (8, 3),
            "{:?}",
            device.kernel_stats()
        );

        // Allows a frame once that crosses a chunk: its page is two chunks.
        device.sender.pretend_unaligned();
        let params = PoolParams { order: 1, domains: vec![device.umem.clone()], ..Default::default() };
        let pairs = Pool::new(params, arena).unwrap().bind();
        let frame = |offset| XdpFrame::from(XdpBuff::new(pairs.alloc_page().unwrap(), offset, 100).unwrap());
        let mut queue = TxQueue::from([frame(0), frame(2000), frame(300)]);
        assert_eq!(device.transmit(&mut queue), 3);
        let mut done = XdpFrameBulk::new();
        while device.stats().tx_completed < 2 && device.wait(&pool, veth::LIMIT) == Wake::Ready {
            device.complete(&mut done, 8);
        }
        // Some kernels complete what they refuse (6.18 does), others never do.
        let (xsk, left) = (device.kernel_stats(), device.stats().in_tx);
        assert_eq!((xsk.rejected, xsk.tx_invalid_descs, xsk.tx_in_kernel), (left, 1, 0), "{xsk:?}");
        assert_eq!(far.arriving(2).len(), 2, "two of three");
        drop((packets, done));
        device.close();
        let out = pool.inflight().out + pairs.inflight().out;
        assert_eq!((device.stats().closed_with, out), (8 + left, 0), "all buffers returned");
        assert_eq!(device.kernel_stats().tx_invalid_descs, 1, "what the kernel counted is known still");
    }

    /// An XDP program that puts four bytes of metadata before each packet, and redirects it.
    fn marking(map: i32) -> [Insn; 17] {
        let op = |code, to: u8, from: u8, offset, imm| Insn { code, registers: from << 4 | to, offset, imm };
        [
            op(0xbf, 6, 1, 0, 0),           // r6 = r1
            op(0xb7, 2, 0, 0, -4),          // r2 = -4
            op(0x85, 0, 0, 0, 54),          // call bpf_xdp_adjust_meta
            op(0x61, 2, 6, 8, 0),           // r2 = *(u32 *)(r6 + 8): data_meta
            op(0x61, 3, 6, 0, 0),           // r3 = *(u32 *)(r6 + 0): data
            op(0xbf, 1, 2, 0, 0),           // r1 = r2
            op(0x07, 1, 0, 0, 4),           // r1 += 4
            op(0x2d, 1, 3, 7, 0),           // if r1 > r3 goto out
            op(0x62, 2, 0, 0, 0x6b72_616d), // *(u32 *)(r2 + 0) = "mark"
            op(0x61, 2, 6, 16, 0),          // r2 = *(u32 *)(r6 + 16): rx_queue_index
            op(0x18, 1, 1, 0, map),         // r1 = map_fd ll
            op(0, 0, 0, 0, 0),
            op(0xb7, 3, 0, 0, 1),  // r3 = XDP_DROP
            op(0x85, 0, 0, 0, 51), // call bpf_redirect_map
            op(0x95, 0, 0, 0, 0),  // exit
            op(0xb7, 0, 0, 0, 1),  // out: r0 = XDP_DROP
            op(0x95, 0, 0, 0, 0),  // exit
        ]
    }

    #[test]
    fn metadata_of_ones_own_program_lies_before_the_packet() {
        if let Some(why) = veth::missing() {
            return println!("SKIP metadata: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let map = bpf::create_socket_map(1).unwrap();
        let program = bpf::load(&marking(map.as_raw_fd()), bpf::Kind::Xdp { frags: false }).unwrap();
        let _link = bpf::attach(program.as_fd(), lookup::look_up("near0").unwrap().index, true).unwrap();
        let (mut device, pool) = open_over(Redirect::over_map(map));
        let mut packets = Vec::with_capacity(8);
        device.receive(&pool, &mut packets, 8);
        assert!(veth.far_end(0).send(&[7; 60]));
        while packets.is_empty() && device.wait(&pool, veth::LIMIT) == Wake::Ready {
            device.receive(&pool, &mut packets, 8);
        }
        let packet = &mut packets[0];
        assert_eq!(
            (packet.offset(), packet.headroom(), packet.data()),
            (256, 256, &[7; 60][..]),
            "to the byte"
        );
        packet.adjust_meta(-4).unwrap();
        assert_eq!((packet.meta(), packet.headroom()), (&b"mark"[..], 252));
    }

    #[test]
    fn a_socket_that_took_anothers_place_in_a_map_stays_there() {
        if let Some(why) = veth::missing() {
            return println!("SKIP replaced sockets: {why}");
        }
        let _veth = veth::Veth::new(2, 1500);
        let map = Redirect::over_map(bpf::create_socket_map(8).unwrap());
        let small = |interface: &str, key| XskParams {
            interface: interface.into(),
            rx_ring: 8,
            tx_ring: 8,
            redirect: Some(map.clone()),
            map_key: Some(key),
            ..Default::default()
        };
        let (device, pool) = open_pages(UmemParams { mode: XskMode::Copy, ..Default::default() }, 8);
        let umem = device.umem.clone();
        drop(device);
        let first = XskDevice::open(small("near0", 5), &umem, &pool).unwrap();
        let second = XskDevice::open(small("near1", 6), &umem, &pool).unwrap();
        bpf::clear_socket(map.map(), 5).unwrap(); // as code that replaces it does
        bpf::set_socket(map.map(), 5, second.open.as_ref().unwrap().fd.as_fd()).unwrap();
        drop(first);
        let taken = XskDevice::open(small("near0", 5), &umem, &pool).map(drop).unwrap_err().to_string();
        assert!(taken.contains("key 5 of the map has a socket already"), "{taken}");
        drop(second); // removes its own at 6; the kernel removes the other
        XskDevice::open(small("near0", 5), &umem, &pool).map(drop).expect("the place is free");
    }

    #[test]
    fn a_socket_that_a_child_has_still_gets_nothing_after_the_close() {
        if let Some(why) = veth::missing() {
            return println!("SKIP sockets of children: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let (mut device, pool) = open();
        device.receive(&pool, &mut Vec::new(), 0);
        let in_child = device.open.as_ref().unwrap().fd.as_fd().try_clone_to_owned().unwrap();
        // the XDP program stays attached, and looks into the map
        let redirect = device.redirect().unwrap().clone();
        device.close();
        let (stack, mut bytes) = (FrameSocket::open_here("near0").unwrap(), [0; 64]);
        assert!(veth.far_end(0).send(&[7; 60]) && stack.wait(veth::LIMIT), "the stack gets it");
        assert_eq!((stack.receive(&mut bytes).unwrap(), &bytes[..60]), (Some(60), &[7; 60][..]));
        drop((in_child, redirect));
        assert_eq!(pool.inflight().out, 0);
    }

    #[test]
    fn a_redirect_of_another_interface_is_refused() {
        if let Some(why) = veth::missing() {
            return println!("SKIP redirects of other interfaces: {why}");
        }
        let _veth = veth::Veth::new(2, 1500);
        let redirect = Some(Redirect::load("near1", Attach::Auto, false).unwrap());
        let params = XskParams { interface: "near0".into(), redirect, ..Default::default() };
        let refused = XskDevice::simple_with(params).map(drop).unwrap_err().to_string();
        assert_eq!(refused, "redirect is of near1, but must be of the device's interface");
    }

    fn busy(budget: u32) -> XskParams {
        let busy_poll = Some(BusyPoll { micros: 30, budget });
        let redirect = Some(Redirect::attach("near0", Attach::Auto, false).unwrap());
        let small = XskParams { rx_ring: 64, tx_ring: 64, ..Default::default() };
        XskParams { interface: "near0".into(), redirect, busy_poll, ..small }
    }

    #[test]
    fn busy_polling_is_set_in_the_kernel_and_packets_pass() {
        if let Some(why) = veth::missing() {
            return println!("SKIP busy polling: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let (idle, pool) = open();
        let umem = idle.umem.clone();
        drop(idle);
        let mut device = XskDevice::open(busy(77), &umem, &pool).unwrap();
        let fd = device.open.as_ref().unwrap().fd.clone();
        let option = |name| socket::option::<u32>(fd.as_fd(), libc::SOL_SOCKET, name).unwrap();
        assert_eq!([libc::SO_PREFER_BUSY_POLL, libc::SO_BUSY_POLL].map(option), [1, 30]);
        // The budget cannot be read. But a thread without the right to raise it may set its current value.
        let takes = |budget| {
            veth::without(&[veth::CAP_NET_ADMIN], || {
                let name = libc::SO_BUSY_POLL_BUDGET;
                socket::set_option(fd.as_fd(), libc::SOL_SOCKET, name, &budget).is_ok()
            })
        };
        assert_eq!((takes(78), takes(77)), (false, true));
        drop(fd);
        let mut far = veth.far_end(0);
        let (mut packets, mut done) = (Vec::with_capacity(8), XdpFrameBulk::new());
        device.receive(&pool, &mut packets, 8);
        for number in 0..200u8 {
            assert!(far.send(&[number; 60]));
            while packets.is_empty() && device.wait(&pool, veth::LIMIT) == Wake::Ready {
                device.receive(&pool, &mut packets, 8);
            }
            assert_eq!(device.transmit(&mut packets.drain(..).map(XdpFrame::from).collect()), 1);
            assert_eq!(far.next(), [number; 60], "packet {number}");
            device.complete(&mut done, 8);
            done.flush();
        }
        let (before, mut none) = (device.calls.count, Vec::with_capacity(1));
        device.receive(&pool, &mut none, 1);
        assert!(device.calls.count > before, "a round that finds nothing polls the driver");
        let before = device.calls.count;
        assert!(
            matches!(device.arm(&pool), Armed::Idle { .. }) && device.calls.count > before,
            "so does a wait"
        );
        println!("busy polling on a veth: NAPI id {:?}", device.napi_id());
        let start = Instant::now();
        assert_eq!(device.wait(&pool, Duration::from_millis(300)), Wake::Timeout, "it still sleeps");
        assert!(start.elapsed() >= Duration::from_millis(300));
        device.close();
        assert_eq!(pool.inflight().out, 0);
    }

    #[test]
    fn busy_polling_names_the_capability_that_is_missing() {
        if let Some(why) = veth::missing() {
            return println!("SKIP busy polling: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let (idle, pool) = open();
        let umem = idle.umem.clone();
        drop(idle);
        let (params, pool) = (busy(64), pool.unbind());
        let refused = veth::without(&[veth::CAP_NET_ADMIN, veth::CAP_SYS_ADMIN], || {
            XskDevice::open(params, &umem, &pool.bind()).map(drop).unwrap_err().to_string()
        });
        assert!(
            refused.contains("SO_PREFER_BUSY_POLL")
                && refused.contains("CAP_NET_ADMIN")
                && refused.contains("64 packets"),
            "{refused}"
        );
        assert_eq!(umem.sockets(), 0);
        drop(open()); // the queue is free, and the memory can be registered again
    }

    /// Opens and closes a device with these system calls refused. Returns whether it knew a way to wait, and
    /// counts.
    fn closed_without(calls: &[veth::Refused]) -> (bool, u64, u64) {
        veth::refused(calls, || {
            let (mut device, pool) = open();
            device.receive(&pool, &mut Vec::new(), 0);
            let grace_period = &device.open.as_ref().unwrap().grace_period;
            let knows = matches!(grace_period, Some(GracePeriod(Some(_))));
            device.close();
            (knows, device.stats().closed_with, pool.inflight().out)
        })
    }

    #[test]
    fn without_a_grace_period_buffers_are_leaked() {
        if let Some(why) = veth::missing() {
            return println!("SKIP grace period: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        assert_eq!(closed_without(&veth::GRACE_PERIODS), (true, 8, 0), "a packet socket also waits for it");
        assert_eq!(closed_without(&veth::GRACE_PERIODS[1..]), (false, 8, 0), "it is made when it is needed");
        let all = [veth::GRACE_PERIODS[0], veth::GRACE_PERIODS[1], veth::PACKET_SOCKET];
        let (knows, closed_with, out) = closed_without(&all);
        assert_eq!((knows, closed_with), (false, 0));
        assert_eq!(out, 8, "nobody gets these pages");
    }

    #[test]
    fn a_probe_waits_until_the_queue_is_free() {
        if let Some(why) = veth::missing() {
            return println!("SKIP probe: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let (mut device, _pool) = open();
        let (probe, again, queue) =
            (device.umem.probe().unwrap(), device.umem.probe().unwrap(), device.queue);
        let waiting = std::thread::spawn(move || probe.wait(queue));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished(), "the queue has its socket still");
        device.close();
        assert!(waiting.join().unwrap(), "the close ends the wait");
        veth.remove();
        assert!(again.wait(queue), "an interface that is gone is free");
    }
}
