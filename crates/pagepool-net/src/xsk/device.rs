//! The device: one AF_XDP socket, with its rings and the tables of what the kernel has.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{Bound, Buff, DmaDomain, Error, Frame, FrameBulk, MAX_FRAGS};

use super::params::{XskParams, parameter};
use super::receiver::Receiver;
use super::redirect::{self, Redirect};
use super::ring::{Consumer, Producer};
use super::sender::Sender;
use super::stats::XskStats;
use super::sys::link;
use super::sys::socket::{self as sys, KernelCounts, Mapped, Ring, errno};
use super::umem::{Queue, Umem, check_queue};
use crate::device::{Capabilities, Device, DeviceStats, Wake};
use crate::reach::Reach;
use crate::sys::event;

/// The longest sleep while frames are being sent: the kernel does not wake anybody for a completion.
const WHILE_SENDING: Duration = Duration::from_millis(1);
/// The longest sleep otherwise: an interface that goes away wakes nobody either.
const NAP: Duration = Duration::from_millis(100);
/// Calls for one transmit ring at a time, each of which sends up to 32 packets in copy mode.
const KICKS: usize = 64;
/// Bytes of sent packets that may wait in the kernel, per slot of the transmit ring.
const SEND_BUFFER_PER_SLOT: u32 = 4096;

/// One queue of an interface over AF_XDP. See the head of the module for what it does, and for which thread may do what.
#[derive(Debug)]
pub struct XskDevice {
    name: String,
    can: Capabilities,
    reach: Reach,
    umem: Arc<Umem>,
    queue: u32,
    /// `None` once it is closed.
    socket: Option<Arc<OwnedFd>>,
    redirect: Option<Arc<Redirect>>,
    receiver: Receiver,
    sender: Sender,
    zero_copy: bool,
    stats: DeviceStats,
    /// What the kernel had counted when the socket was closed.
    last: KernelCounts,
    gone: bool,
}

/// An Ethernet header with a VLAN tag: what an interface takes beyond its MTU.
const HEADERS: usize = pagepool::ETH_HEADER + 4;

/// The four rings of a socket, our ends.
struct Rings {
    fill: Producer<Mapped, 1>,
    received: Consumer<Mapped, 2>,
    send: Producer<Mapped, 2>,
    done: Consumer<Mapped, 1>,
}

impl XskDevice {
    /// Opens a queue of an interface of this thread's network namespace over a UMEM. It has no buffers for packets
    /// before its first [`receive`](Device::receive), also where it only transmits: some drivers leak without.
    pub fn open(params: XskParams, umem: &Arc<Umem>) -> Result<Self, Error> {
        params.check()?;
        let index = redirect::index_of(&params.interface)?;
        check_queue(&params.interface, params.queue, link::queues(&params.interface).ok())?;
        let (fd, has_memory) = umem.take_socket()?;
        let buffers = rx_buffers(&params, umem)?;
        let rings = make_rings(fd.as_fd(), &params, buffers)?;
        sys::raise_send_buffer(fd.as_fd(), params.tx_ring.saturating_mul(SEND_BUFFER_PER_SLOT));
        let fd = Arc::new(fd);
        let queue = Queue { namespace: sys::namespace(fd.as_fd()), index, number: params.queue };
        umem.bind(&fd, has_memory, queue, params.busy_limit)?;
        let this = Self::new(&params, umem, fd, rings, buffers as usize);
        // From here on dropping it closes the socket in order.
        if let (Some(redirect), Some(socket)) = (&this.redirect, &this.socket) {
            redirect.insert(params.queue, socket.as_fd())?;
        }
        Ok(this)
    }

    fn new(params: &XskParams, umem: &Arc<Umem>, fd: Arc<OwnedFd>, rings: Rings, buffers: usize) -> Self {
        let layout = umem.layout();
        let max_buffers = if umem.params().multi_buffer { MAX_FRAGS + 1 } else { 1 };
        let wire = link::mtu(&params.interface).map_or(usize::MAX, |mtu| mtu as usize + HEADERS);
        let max_packet = wire.min(umem.packet_capacity() * max_buffers);
        let (slots, domain) = (params.tx_ring as usize, umem.clone() as Arc<dyn DmaDomain>);
        Self {
            name: format!("{}:{}", params.interface, params.queue),
            can: Capabilities { rx_ring: buffers, tx_ring: slots, max_packet, max_buffers, maps: false },
            reach: Reach::new(domain),
            umem: umem.clone(),
            queue: params.queue,
            zero_copy: sys::is_zero_copy(fd.as_fd()),
            socket: Some(fd),
            redirect: params.redirect.clone(),
            receiver: Receiver::new(rings.fill, rings.received, layout, buffers, max_buffers),
            sender: Sender::new(rings.send, rings.done, layout, slots, max_buffers, max_packet),
            stats: DeviceStats::default(),
            last: KernelCounts::default(),
            gone: false,
        }
    }

    /// Whether the driver works on the UMEM itself.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// What redirects packets to it.
    pub fn redirect(&self) -> Option<&Arc<Redirect>> {
        self.redirect.as_ref()
    }

    /// What the kernel counts, how full the rings are, and where the buffers are. A system call.
    pub fn xsk_stats(&self) -> XskStats {
        let closed = self.socket.is_none();
        let levels = if closed { (0, 0) } else { self.receiver.levels() };
        let tx = if closed { (0, 0) } else { (self.sender.pending(), self.sender.completions()) };
        XskStats::new(self.kernel_counts(), (self.receiver.held(), levels), (self.sender.held(), tx))
    }

    fn kernel_counts(&self) -> KernelCounts {
        self.socket.as_ref().and_then(|socket| sys::statistics(socket.as_fd()).ok()).unwrap_or(self.last)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().filter(|_| !self.gone).map(|socket| socket.as_fd())
    }

    /// Calls the kernel while there is something on the transmit ring, it waits for that, and a call brings it on.
    #[inline]
    fn kick_transmit(&mut self) {
        if self.sender.held() == 0 {
            return;
        }
        for _ in 0..KICKS {
            let pending = self.sender.pending();
            let wanted = pending > 0 || (self.zero_copy && !self.sender.has_some());
            if !wanted || !self.sender.needs_wakeup() {
                return;
            }
            let Some(fd) = self.fd() else { return };
            match sys::kick_transmit(fd) {
                Err(error) if is_gone(&error) => self.gone = true,
                _ if self.sender.pending() < pending => {}
                _ => return, // no room in the kernel now, or the interface is down: the next round tries again
            }
        }
    }

    #[inline]
    fn kick_receive(&mut self) {
        if self.receiver.needs_wakeup()
            && let Some(fd) = self.fd()
            && let Err(error) = sys::kick_receive(fd)
        {
            self.gone |= is_gone(&error);
        }
    }

    /// Looks whether the interface went away.
    fn look(&mut self) -> bool {
        if let Some(fd) = self.fd() {
            self.gone = sys::take_error(fd).is_some();
        }
        self.gone || self.socket.is_none()
    }
}

/// Whether an error of a call means that the socket is bound to nothing any more. An interface that is down is not gone.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::ENXIO | errno::ENODEV))
}

/// Buffers that the kernel is to have.
fn rx_buffers(params: &XskParams, umem: &Umem) -> Result<u32, Error> {
    let hardware = match umem.params().mode {
        super::XskMode::Copy => 0,
        _ => link::hardware_ring(&params.interface).unwrap_or(0),
    };
    let buffers = if params.rx_buffers == 0 { params.rx_ring + hardware } else { params.rx_buffers };
    if u64::from(buffers) << umem.layout().unit_shift > umem.layout().len {
        let must_be = format!("at most the UMEM's {} chunks", umem.layout().len >> umem.layout().unit_shift);
        return Err(parameter("rx_buffers", buffers, must_be));
    }
    Ok(buffers)
}

fn make_rings(fd: BorrowedFd<'_>, params: &XskParams, buffers: u32) -> Result<Rings, Error> {
    let ring = |ring, entries| -> Result<Mapped, Error> {
        let made = sys::set_ring_size(fd, ring, entries).and_then(|()| Mapped::new(fd, ring, entries));
        made.map_err(|source| {
            let remedy = format!("no ring of {entries} entries: make it smaller");
            Error::System { call: "setsockopt(AF_XDP ring)", remedy, source }
        })
    };
    let fill = 2 * buffers.next_power_of_two();
    let (rx, tx) = (params.rx_ring, params.tx_ring);
    Ok(Rings {
        fill: Producer::new(ring(Ring::Fill, fill)?, fill),
        done: Consumer::new(ring(Ring::Completion, tx)?, tx),
        received: Consumer::new(ring(Ring::Receive, rx)?, rx),
        send: Producer::new(ring(Ring::Transmit, tx)?, tx),
    })
}

impl Device for XskDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn domain(&self) -> Option<&Arc<dyn DmaDomain>> {
        Some(self.reach.domain())
    }

    #[inline]
    fn receive(&mut self, pool: &Bound, into: &mut Vec<Buff>, budget: usize) -> usize {
        if self.fd().is_none() {
            return 0;
        }
        let n = self.receiver.receive(into, budget, &mut self.stats);
        self.receiver.refill(pool, &mut self.reach, &mut self.stats);
        self.kick_receive();
        n
    }

    #[inline]
    fn transmit(&mut self, frames: &mut VecDeque<Frame>) -> usize {
        if self.fd().is_none() {
            return 0;
        }
        let n = self.sender.transmit(frames, &mut self.reach, &mut self.stats);
        self.kick_transmit();
        n
    }

    #[inline]
    fn complete(&mut self, done: &mut FrameBulk, budget: usize) -> usize {
        if self.fd().is_none() {
            return 0;
        }
        self.kick_transmit(); // what an earlier call had no room for
        self.sender.complete(done, budget, &mut self.stats)
    }

    fn wait(&mut self, pool: &Bound, timeout: Duration) -> Wake {
        let start = Instant::now();
        loop {
            if self.look() {
                return Wake::Gone;
            }
            self.kick_transmit();
            let ready = self.receiver.has_some() || self.sender.has_some();
            let left = timeout.saturating_sub(start.elapsed());
            let nap = if self.sender.held() > 0 { WHILE_SENDING } else { NAP };
            let sleep = if ready { Duration::ZERO } else { left.min(nap) };
            let [by_socket, by_pool] = event::wait_readable([self.fd(), pool.wake_fd()], sleep);
            if by_pool {
                pool.acknowledge_wake();
            }
            if ready || by_socket || by_pool {
                return Wake::Ready;
            }
            if left <= sleep {
                return Wake::Timeout;
            }
        }
    }

    fn stats(&self) -> DeviceStats {
        let kernel = self.kernel_counts();
        DeviceStats {
            rx_no_buffer: kernel.fill_ring_empty + kernel.rx_ring_full,
            rx_too_long: kernel.rx_dropped.saturating_sub(kernel.fill_ring_empty),
            in_rx: self.receiver.held() as u64,
            in_tx: self.sender.held() as u64,
            ..self.stats
        }
    }

    fn close(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        self.last = sys::statistics(socket.as_fd()).unwrap_or_default();
        if let Some(redirect) = self.redirect.take() {
            redirect.remove(self.queue);
        }
        self.umem.close(socket);
        self.stats.closed_with += (self.receiver.clear() + self.sender.clear()) as u64;
    }
}

impl Drop for XskDevice {
    fn drop(&mut self) {
        self.close();
    }
}
