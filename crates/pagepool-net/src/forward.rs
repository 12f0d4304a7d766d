//! The forwarding loop: receive, call the handler, carry out its verdicts, send, complete.
//!
//! A [`Forwarder`] has a handler (a closure or a [`PacketHandler`]) and ports: devices, each with the pool
//! that it receives into. [`run`](Forwarder::run) polls until it is stopped. [`poll`](Forwarder::poll) is one
//! round: at most a budget of packets from each port go through the handler. [`wait`](Forwarder::wait) sleeps
//! on all ports at once.
//!
//! ```no_run
//! // It needs root and an interface.
//! use pagepool_net::{Action, Forwarder, XskDevice, swap_macs};
//!
//! let (device, pool) = XskDevice::simple("eth0", 0)?;
//! let mut forwarder = Forwarder::new(|packet, _| {
//!     swap_macs(packet.data_mut());
//!     Action::Tx // back to where it came from
//! });
//! forwarder.add_port(device, pool);
//! forwarder.run(&std::sync::atomic::AtomicBool::new(false))?;
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! Who    one thread, which owns the pools. For several threads, give each a forwarder with its own queues; a
//!        [`handoff`] carries packets to ports of another forwarder, or to a worker without one.
//! Order  the handler decides about all packets of a burst, then the verdicts are carried out one by one. If
//!        it panics, the burst ends: its buffers return.
//! Short  if all packets of a burst leave by one port of this thread, nothing waits for that port, and its
//!        device accepts them, the device gets them unchanged. Otherwise packets become frames and wait, in
//!        order, for the end of the burst.
//! Return buffers of dropped packets return in bulk at the end of each burst, those of sent frames through a
//!        [`XdpFrameBulk`]. A packet of another thread's pool returns singly.
//! Cost   nothing is allocated, locked or formatted per packet; rings and the budget bound all memory.
//! Shown  if the process [publishes](pagepool::publish): devices and ports, and their counters up to 20 times
//!        a second.

mod cycles;
mod egress;
mod handler;
mod handoff;
pub(crate) mod holder_tags;
mod outlets;
mod poll_list;
mod port;
mod port_sleep;
mod published;
mod published_device;
mod stack;
mod stack_calls;
mod stats;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagepool::{Bound, ETH_HEADER, Error, XdpBuff, XdpFrame, XdpFrameBulk, put_packets};

use crate::device::waker::Waker;
use crate::device::{Armed, Calls, Device, TxQueue, Wake, boxed};
use crate::error::{parameter, within};
use crate::sys::errno;
pub use cycles::PartCycles;
use cycles::{LoopPart, Meter};
pub use egress::{Egress, PathStats};
pub use handler::{Action, Ingress, PacketHandler, PortId, swap_macs};
pub use handoff::{HandoffRx, HandoffTx, handoff};
use holder_tags::tag_received;
pub use outlets::Outlets;
use poll_list::PollList;
use port::Port;
use port_sleep::PortSleep;
use published::ShowTimes;
pub use published_device::PublishedDevice;
pub use stack::{NoStack, Stack};
pub use stats::ForwardStats;

/// Packets that one poll takes from a port by default. Linux: `NAPI_POLL_WEIGHT`.
#[doc(alias = "NAPI_POLL_WEIGHT")]
pub const BUDGET: usize = 64;

/// Packets between the current one and the one that is prefetched: enough time to fetch it from another CPU.
const AHEAD: usize = 16;

/// The largest budget.
const MOST: usize = 4096;

/// The longest sleep of [`Forwarder::run`] without a waker and with one, and the number of busy rounds in a
/// row after which it looks for devices that are gone.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
const LONGEST_WITH_WAKER: Duration = Duration::from_secs(1);
const LOOK_AFTER: u32 = 4096;

#[derive(Debug)]
enum PortRoute {
    /// A port that this thread polls.
    Here(usize),
    /// A port of another thread.
    There(HandoffTx),
}

impl PortRoute {
    /// The index of a port with a device.
    fn place(routes: &[Self], port: PortId) -> Option<usize> {
        match routes.get(port.0 as usize)? {
            Self::Here(at) => Some(*at),
            Self::There(_) => None,
        }
    }
}

/// Receives packets, calls the handler, and carries out its verdicts, on the thread that made it.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::{Action, Forwarder, MemNicParams, NicDomain, PortId, mem_nic};
///
/// let mut forwarder = Forwarder::new(|packet, at| match packet.data()[0] {
///     0 => Action::Redirect(PortId(1 - at.port.0)),
///     _ => Action::Drop,
/// });
/// let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
/// let mut wires = Vec::new();
/// for name in ["mem0", "mem1"] {
///     let domain = NicDomain::new(name);
///     let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
///     let (nic, wire) = mem_nic(MemNicParams::default(), domain)?;
///     forwarder.add_port(nic, Pool::new(params, arena.clone())?.bind());
///     wires.push(wire);
/// }
/// forwarder.poll(); // gives the devices their first buffers
///
/// assert!(wires[0].deliver(&[0; 60]) && wires[0].deliver(&[1; 60]));
/// while forwarder.poll() > 0 {}
/// assert!(wires[1].take(|packet| assert_eq!(packet, [0; 60])));
/// let stats = forwarder.stats(PortId(0)).expect("it was added first");
/// assert_eq!((stats.rx, stats.redirect_out, stats.drop), (2, 1, 1));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct Forwarder<P, S = NoStack> {
    ports: Vec<Port>,
    poll_list: PollList,
    routes: Vec<PortRoute>,
    handler: P,
    stack: S,
    budget: usize,
    received: Vec<XdpBuff>,
    verdicts: Vec<Action>,
    /// Packets dropped in this burst.
    ended: Vec<XdpBuff>,
    done: XdpFrameBulk,
    meter: Meter,
    showing: ShowTimes,
    sleep: PortSleep,
}

impl<F: FnMut(&mut XdpBuff, Ingress) -> Action> Forwarder<F> {
    /// A forwarder without ports, with a closure as its handler. Passed packets are counted and dropped.
    ///
    /// ```
    /// use pagepool_net::{Action, Forwarder};
    /// let forwarder = Forwarder::new(|packet, at| match packet.data()[0] & 1 {
    ///     0 => Action::Redirect(at.port), // types are inferred
    ///     _ => Action::Drop,
    /// });
    /// # drop(forwarder);
    /// ```
    pub fn new(handler: F) -> Self {
        Self::with_stack(handler, NoStack)
    }
}

impl<P: PacketHandler> Forwarder<P> {
    /// A forwarder without ports, with a handler that has its own type. Passed packets are counted and
    /// dropped.
    ///
    /// ```
    /// use pagepool::XdpBuff;
    /// use pagepool_net::{Action, Forwarder, Ingress, PacketHandler};
    /// struct DropAll;
    /// impl PacketHandler for DropAll {
    ///     fn handle(&mut self, _: &mut XdpBuff, _: Ingress) -> Action {
    ///         Action::Drop
    ///     }
    ///     fn reads(&self) -> bool {
    ///         false // fetches nothing ahead
    ///     }
    /// }
    /// let forwarder = Forwarder::with_handler(DropAll);
    /// # drop(forwarder);
    /// ```
    pub fn with_handler(handler: P) -> Self {
        Self::with_stack(handler, NoStack)
    }
}

impl<P: PacketHandler, S: Stack> Forwarder<P, S> {
    /// A forwarder without ports that delivers passed packets to a stack.
    pub fn with_stack(handler: P, stack: S) -> Self {
        Self {
            ports: Vec::new(),
            poll_list: PollList::default(),
            routes: Vec::new(),
            handler,
            stack,
            budget: BUDGET,
            received: Vec::with_capacity(BUDGET),
            verdicts: Vec::with_capacity(BUDGET),
            ended: Vec::with_capacity(BUDGET),
            done: XdpFrameBulk::new(),
            meter: Meter::default(),
            showing: ShowTimes::default(),
            sleep: PortSleep::default(),
        }
    }

    /// Sets how many packets one poll takes from a port at most: 64 by default.
    pub fn set_budget(&mut self, packets: usize) -> Result<(), Error> {
        within("budget", packets, 1..=MOST)?;
        self.budget = packets;
        self.received.reserve_exact(packets);
        self.verdicts.reserve_exact(packets);
        self.ended.reserve_exact(packets);
        self.ports.iter_mut().for_each(|port| port.expect(packets));
        Ok(())
    }

    /// Adds a device (boxed or not), with the pool that it receives into. The pool must be mapped in the
    /// device's domain. At most one transmit ring of packets (at least one burst) waits for the device; the
    /// rest are dropped and counted.
    ///
    /// In pools that record [`holders`](pagepool::PoolParams::holders) the forwarder names them: pages that
    /// the pool allocates from now on are in the `receive rings of` the device; packets that wait for a
    /// port's transmit ring, or are on it, are `to send by` that device.
    ///
    /// If the process [publishes](pagepool::publish) (call it before making pools), device and port are shown
    /// until the port is closed: see [`show`](Self::show).
    pub fn add_port(&mut self, device: impl Device + 'static, pool: Bound) -> PortId {
        self.add_boxed(boxed(device), pool)
    }

    fn add_boxed(&mut self, device: Box<dyn Device>, pool: Bound) -> PortId {
        let id = self.next_id();
        let at = self.ports.len();
        self.routes.push(PortRoute::Here(at));
        let mut port = Port::new(id, device, pool, self.budget);
        self.poll_list.add(&mut port, at);
        tag_received(&port.pool, &port.device.info().name);
        self.showing.add(port.published.as_ref());
        self.ports.push(port);
        if self.ports.iter().any(|port| port.pool.handle().records_holders()) {
            self.ports.iter_mut().for_each(Port::name_holders); // any port sends frames of any pool
        }
        id
    }

    /// Adds a port of another thread: frames go to the [`HandoffRx`] that this sender belongs to.
    pub fn add_remote(&mut self, outlet: HandoffTx) -> PortId {
        let id = self.next_id();
        self.routes.push(PortRoute::There(outlet));
        id
    }

    /// Sends the frames of another thread out of a port of this forwarder.
    pub fn add_handoff(&mut self, port: PortId, inlet: HandoffRx) -> Result<(), Error> {
        let Some(at) = self.place(port) else {
            let must_be = "a port that add_port of this forwarder returned";
            return Err(parameter("port", port.0, must_be));
        };
        self.ports[at].inlets.push(inlet);
        Ok(())
    }

    /// Polls and waits until `stop` is true. Checks `stop` in every round, and 10 times a second while it
    /// sleeps. With a [`waker`](Self::waker) it checks once a second while it sleeps, and when the waker is
    /// called. Closes a device that is gone, and continues with the others. In the end it sends what still
    /// has room, and returns; it may be called again.
    ///
    /// Fails if all devices are gone, and names them.
    ///
    /// ```no_run
    /// // It needs root and an interface.
    /// use std::sync::atomic::AtomicBool;
    ///
    /// use pagepool_net::{Action, Forwarder, XskDevice};
    ///
    /// fn main() -> Result<(), pagepool::Error> {
    ///     let (device, pool) = XskDevice::simple("eth0", 0)?;
    ///     let mut forwarder = Forwarder::new(|packet, _| {
    ///         println!("{} bytes", packet.len());
    ///         Action::Drop
    ///     });
    ///     forwarder.add_port(device, pool);
    ///     forwarder.run(&AtomicBool::new(false)) // until Ctrl-C, or until eth0 is removed
    /// }
    /// ```
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        if self.ports.is_empty() {
            return Err(parameter("ports", 0, "1 or more: call add_port before run"));
        }
        let mut busy = 0;
        while !stop.load(Ordering::Relaxed) {
            busy = if self.poll() > 0 { busy + 1 } else { 0 };
            // A busy loop also looks for gone devices now and then.
            let wake = match busy {
                0 => {
                    self.wait(if self.sleep.wakened.has_waker() { LONGEST_WITH_WAKER } else { LONGEST_SLEEP })
                }
                LOOK_AFTER => self.wait(Duration::ZERO),
                _ => continue,
            };
            if wake == Wake::Gone {
                return Err(self.all_gone());
            }
            busy = 0;
        }
        self.flush();
        Ok(())
    }

    /// Makes a waker, which ends the sleep of [`wait`](Self::wait) or [`run`](Self::run) from any thread. A
    /// call between two sleeps ends the second one: none is lost.
    ///
    /// The first call makes an event counter, which fails if the process has no descriptors left.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::{thread, time::Duration};
    ///
    /// use pagepool_net::{Action, Forwarder};
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_net::{MemNicParams, NicDomain, mem_nic};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    /// # let domain = NicDomain::new("mem0");
    /// # let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    /// # let (nic, _wire) = mem_nic(MemNicParams::default(), domain)?;
    /// let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    /// # forwarder.add_port(nic, Pool::new(params, arena)?.bind());
    /// let (stop, waker) = (Arc::new(AtomicBool::new(false)), forwarder.waker()?);
    /// let stopping = stop.clone();
    /// thread::spawn(move || {
    ///     thread::sleep(Duration::from_millis(10)); // or until the program must end
    ///     stopping.store(true, Ordering::Relaxed);
    ///     waker.wake();
    /// });
    /// forwarder.run(&stop)?;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn waker(&self) -> Result<Waker, Error> {
        self.sleep.wakened.waker()
    }

    fn all_gone(&self) -> Error {
        let names: Vec<_> = self.ports.iter().map(|port| &*port.device.info().name).collect();
        Error::System {
            call: "Forwarder::run",
            remedy: format!("all devices are gone ({}): was an interface removed?", names.join(", ")),
            source: std::io::Error::from_raw_os_error(errno::ENODEV),
        }
    }

    /// One round over the ports. Returns how many packets it received, took from handoffs, sent and
    /// completed. If it returns 0, it has polled every port: call [`wait`](Self::wait).
    ///
    /// While other ports are busy, a port that moved nothing for 8 rounds, and has nothing to send, rests. It
    /// is polled again after 32 rounds or 512 forwarded packets, and when no port moves anything.
    pub fn poll(&mut self) -> usize {
        put_packets(&mut self.ended); // not empty only if a stack panicked
        if self.poll_list.is_sweep_due() {
            self.poll_list.wake_all(&mut self.ports);
            if self.showing.is_due_in_sweep() {
                self.show();
            }
        }
        let all_polled = self.poll_list.all_polled().len() == self.ports.len();
        let mut moved = self.round();
        if moved == 0 && !all_polled {
            self.poll_list.wake_all(&mut self.ports);
            moved = self.round();
        }
        self.poll_list.end(&mut self.ports, moved);
        self.ring();
        moved
    }

    /// Shows observers of this process the counters of its devices and ports, and that the process
    /// [lives](pagepool::sign_of_life). [`run`](Self::run), [`poll`](Self::poll) and [`wait`](Self::wait)
    /// call it up to 20 times a second while packets move, and before they sleep. Call it yourself while you
    /// call none of these. Does nothing if no port is shown.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_net::{Action, Forwarder, MemNicParams, NicDomain, mem_nic};
    /// # let folder = std::env::temp_dir().join(format!("pagepool-show-{}", std::process::id()));
    /// # // SAFETY: the example has one thread.
    /// # unsafe { std::env::set_var("PAGEPOOL_RUN", &folder) };
    /// let publication = pagepool::publish("doc")?; // before pools and ports
    /// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    /// # let domain = NicDomain::new("mem0");
    /// # let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    /// # let (nic, mut wire) = mem_nic(MemNicParams::default(), domain)?;
    /// # let pool = Pool::new(params, arena)?.bind();
    /// let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    /// forwarder.add_port(nic, pool);
    /// forwarder.poll();
    /// # assert!(wire.deliver(&[0; 60]));
    /// forwarder.poll();
    /// forwarder.show(); // `pagepool show doc` has the port, with this packet
    /// # let seen = pagepool_watch::RunFolder::of_user()?.processes().remove(0)?;
    /// # let port = seen.entries.iter().find(|entry| entry.kind == "port").unwrap();
    /// # assert!(port.counters.contains(&("drop".into(), 1)), "{port:?}");
    /// # drop((forwarder, publication));
    /// # std::fs::remove_dir(folder).unwrap();
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn show(&mut self) {
        self.ports.iter_mut().for_each(Port::show);
        self.showing.shown(self.poll_list.moves());
    }

    /// Polls each port that does not rest.
    fn round(&mut self) -> usize {
        self.meter.start(&mut self.ports, self.poll_list.all_polled());
        let mut moved = self.complete();
        moved += self.transmit();
        let mut number = 0;
        while let Some(at) = self.poll_list.polled(number) {
            let handed = self.take_handed_over(at);
            let came = self.receive(at);
            if came > 0 {
                self.flush_stack(); // not within `receive`, whose loops then take two more instructions
            }
            if handed + came > 0 {
                moved += handed + came + self.transmit();
            }
            number += 1;
        }
        moved += self.flush_due_stack();
        let refused = self.done.len();
        self.done.flush();
        self.meter.lap(LoopPart::Return, refused);
        self.meter.end(moved);
        moved
    }

    /// Takes back sent frames first: their buffers are the next to receive into.
    fn complete(&mut self) -> usize {
        let Self { ports, poll_list, meter, done, .. } = self;
        let polled = poll_list.all_polled();
        let moved = polled.iter().map(|&at| ports[at].complete(done)).sum();
        meter.lap_with_calls(LoopPart::Transmit, moved, || {
            let mut calls = Calls::default();
            polled.iter().for_each(|&at| calls += ports[at].new_calls());
            calls
        });
        done.flush();
        meter.lap(LoopPart::Return, moved);
        moved
    }

    /// One round that receives nothing: sends waiting frames, and takes back sent ones. Returns how many
    /// moved. Call it before the end, to send what is queued.
    pub fn flush(&mut self) -> usize {
        let mut moved = 0;
        for port in &mut self.ports {
            let before = port.complete(&mut self.done);
            let (taken, completed) = port.transmit(&mut self.done);
            moved += before + taken + completed;
        }
        self.done.flush();
        moved
    }

    /// Sends a frame made by this thread out of a port, with the next [`poll`](Self::poll). It counts as
    /// redirected to that port. Returns the frame if the port's queue is full, its device is gone, or there
    /// is no such port.
    pub fn send(&mut self, port: PortId, frame: XdpFrame) -> Result<(), XdpFrame> {
        self.outlets().send(port, frame)
    }

    /// Measures about one in `rounds` of the rounds that move packets, beginning with the next: 1 is every
    /// round, 0 none, the default. Every round costs about 4 cycles per packet in full bursts of 64.
    /// [`cycles`](Self::cycles) covers only measured rounds: divide by their packets.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_net::{Action, Forwarder, MemNicParams, NicDomain, mem_nic};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    /// # let domain = NicDomain::new("mem0");
    /// # let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
    /// # let (nic, mut wire) = mem_nic(MemNicParams::default(), domain)?;
    /// let mut forwarder = Forwarder::new(|_, _| Action::Drop);
    /// # forwarder.add_port(nic, Pool::new(params, arena)?.bind());
    /// forwarder.sample(1); // 16: a sixteenth of the cost
    /// # forwarder.poll();
    /// # (0..10).for_each(|_| assert!(wire.deliver(&[0; 60])));
    /// forwarder.poll();
    /// let spent = forwarder.cycles();
    /// let receive = spent.receive_ticks as f64 / spent.rx_packets as f64;
    /// println!("{receive:.1} ticks/packet, {:.1} packets/burst", spent.rx_packets / spent.rx_bursts);
    /// # assert_eq!((spent.rx_packets, spent.rx_bursts), (10, 1));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn sample(&mut self, rounds: u32) {
        self.meter.sample(rounds.min(1 << 16));
    }

    /// The measured time of each part of the loop. All zero if nothing was measured.
    pub fn cycles(&self) -> PartCycles {
        self.meter.cycles
    }

    /// Sleeps until a device has something to poll, or for `timeout`. Closes a port whose device is gone:
    /// frames that wait for it are counted and return to their pools. Returns `Gone` if no device is left.
    ///
    /// It sleeps at once on all devices, all pools made with `wakeup`, all handoffs, and its
    /// [`waker`](Self::waker). It wakes in time for its stack ([`due`](Stack::due)), and as often as a device
    /// must be polled: once a second for AF_XDP, more often while that sends. A loop that never sleeps calls
    /// it with a zero timeout now and then, to close devices that are gone.
    pub fn wait(&mut self, timeout: Duration) -> Wake {
        self.sleep_until_due(timeout, Self::sleep_for)
    }

    fn sleep_for(&mut self, timeout: Duration) -> Wake {
        self.poll_list.sweep_next();
        let first = self.showing.longest_sleep(self.poll_list.moves());
        if timeout <= first {
            return self.sleep.until_ready(&mut self.ports, timeout);
        }
        let start = Instant::now();
        let wake = self.sleep.until_ready(&mut self.ports, first);
        if wake != Wake::Timeout || start.elapsed() < first {
            return wake;
        }
        self.show(); // packets that moved before the sleep
        self.sleep.until_ready(&mut self.ports, timeout.saturating_sub(start.elapsed()))
    }

    /// Prepares a sleep in your own event loop, in place of [`wait`](Self::wait). Call it when
    /// [`poll`](Self::poll) moved nothing. On `Idle`, sleep on its `fd`, which is [`wake_fd`](Self::wake_fd),
    /// for `at_most`, then poll. Makes one system call for each descriptor that it sleeps on, and a few more.
    /// Fails if the process has no descriptors left, or the kernel has no room for more watches
    /// (`fs.epoll.max_user_watches`).
    pub fn arm(&mut self) -> Result<Armed<'_>, Error> {
        self.poll_list.sweep_next();
        let mut longest = self.showing.longest_sleep(self.poll_list.moves());
        if let Some(due) = self.stack.due() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Armed::Ready);
            }
            longest = longest.min(left);
        }
        self.sleep.arm(&mut self.ports, longest)
    }

    /// One descriptor for everything that [`wait`](Self::wait) sleeps on: readable once there is something to
    /// poll for since [`arm`](Self::arm). It stays valid until the forwarder is dropped. The first call makes
    /// it, and fails if the process has no descriptors left.
    pub fn wake_fd(&mut self) -> Result<BorrowedFd<'_>, Error> {
        self.sleep.descriptor()
    }

    /// Waits like [`wait`](Self::wait), but on the device of one port. `Gone` for a port without a device.
    pub fn wait_on(&mut self, port: PortId, timeout: Duration) -> Wake {
        let Some(at) = self.place(port) else { return Wake::Gone };
        self.sleep_until_due(timeout, |this, timeout| this.ports[at].wait(timeout))
    }

    /// Closes a port: the buffers of its device and its waiting frames return to their pools. Frames sent
    /// there later are counted and dropped.
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    pub fn close_port(&mut self, port: PortId) {
        if let Some(at) = self.place(port) {
            self.ports[at].end();
        }
    }

    /// Closes all ports: the buffers of their devices and their waiting frames return to their pools. Frames
    /// sent there later are counted and dropped. Closes the devices in parallel, because closing an AF_XDP
    /// socket waits 10 ms or more for the kernel: with more than one port it uses one thread per device,
    /// which ends before this returns.
    ///
    /// ```
    /// use pagepool::XdpBuff;
    /// use pagepool_net::{Action, Forwarder, Ingress};
    /// let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Drop);
    /// // Add ports and poll; at the end:
    /// forwarder.close_all();
    /// ```
    pub fn close_all(&mut self) {
        if self.ports.len() > 1 {
            std::thread::scope(|threads| {
                for Port { device, .. } in &mut self.ports {
                    // If no thread can be made, it is closed below.
                    let _ = std::thread::Builder::new().spawn_scoped(threads, || device.close());
                }
            });
        }
        self.ports.iter_mut().for_each(Port::end);
    }

    /// The counters of a port with a device.
    pub fn stats(&self, port: PortId) -> Option<ForwardStats> {
        Some(self.ports[self.place(port)?].stats)
    }

    /// How frames of other ports reached this port's device: reused, mapped or copied.
    pub fn paths(&self, port: PortId) -> Option<PathStats> {
        Some(self.ports[self.place(port)?].egress.stats())
    }

    /// The frames that wait for the transmit ring of a port.
    pub fn waiting(&self, port: PortId) -> Option<&TxQueue> {
        Some(&self.ports[self.place(port)?].waiting)
    }

    /// The device of a port.
    pub fn device(&self, port: PortId) -> Option<&dyn Device> {
        Some(&*self.ports[self.place(port)?].device)
    }

    /// The pool of a port.
    pub fn pool(&self, port: PortId) -> Option<&Bound> {
        Some(&self.ports[self.place(port)?].pool)
    }

    /// The handler.
    pub fn handler(&self) -> &P {
        &self.handler
    }

    /// Closes all ports, and returns the handler with its state.
    pub fn into_handler(self) -> P {
        self.handler
    }

    fn next_id(&self) -> PortId {
        PortId(self.routes.len() as u32)
    }

    fn place(&self, port: PortId) -> Option<usize> {
        PortRoute::place(&self.routes, port)
    }

    fn take_handed_over(&mut self, at: usize) -> usize {
        if self.ports[at].inlets.is_empty() {
            return 0;
        }
        let n = self.ports[at].take_handed_over(&mut self.done, self.budget);
        self.poll_list.activate(&mut self.ports[at], at);
        self.meter.lap(LoopPart::Transmit, n);
        n
    }

    /// Gives waiting frames to each device, while it has room.
    fn transmit(&mut self) -> usize {
        let Self { ports, poll_list, meter, done, .. } = self;
        let (mut moved, mut sent, mut calls) = (0, 0, Calls::default());
        poll_list.send_queued(ports, |port| {
            let (taken, completed) = port.transmit(done);
            (moved, sent) = (moved + taken + completed, sent + taken);
            if meter.is_on() {
                calls += port.new_calls();
            }
        });
        if sent + moved > 0 || calls != Calls::default() {
            meter.lap_with_calls(LoopPart::Transmit, moved, || calls);
            meter.sent(sent);
        }
        moved
    }

    /// Takes one burst of a port through the handler. Returns how many packets were received, plus those sent
    /// at once as a whole burst.
    fn receive(&mut self, at: usize) -> usize {
        let mut received = std::mem::take(&mut self.received);
        received.reserve_exact(self.budget); // allocates only after a handler panicked, which lost the vector
        let n = self.ports[at].receive(&mut received, self.budget);
        self.meter.lap_with_calls(LoopPart::Receive, n, || self.ports[at].new_calls());
        let mut sent = 0;
        if n > 0 {
            let all_end = self.judge(at, &mut received);
            if !all_end {
                sent = self.send_burst(at, &mut received);
                self.carry_out(at, &mut received);
            }
            self.meter.lap(LoopPart::Handle, n);
            put_packets(if all_end { &mut received } else { &mut self.ended });
            self.meter.lap(LoopPart::Return, n);
            self.meter.received(n);
        }
        self.received = received;
        n + sent
    }

    /// Lets the handler decide about a burst. Returns whether all packets are dropped: then they are counted,
    /// and no verdict is left to carry out.
    #[inline]
    fn judge(&mut self, at: usize, packets: &mut [XdpBuff]) -> bool {
        let Self { handler, verdicts, ports, .. } = self;
        let ingress = Ingress { port: ports[at].id };
        let (mut dropped, mut aborted, mut too_short) = (0, 0, 0);
        let reads = handler.reads();
        let mut decide = |packet: &mut XdpBuff| {
            let is_short = reads && packet.data_len() < ETH_HEADER;
            let verdict = if is_short { Action::Drop } else { handler.handle(packet, ingress) };
            too_short += u64::from(is_short);
            dropped += u64::from(verdict == Action::Drop);
            aborted += u64::from(verdict == Action::Aborted);
            verdict
        };
        verdicts.clear();
        if reads {
            packets.iter().take(AHEAD).for_each(XdpBuff::prefetch);
            verdicts.extend((0..packets.len()).map(|number| {
                packets.get(number + AHEAD).inspect(|ahead| ahead.prefetch());
                decide(&mut packets[number])
            }));
        } else {
            verdicts.extend(packets.iter_mut().map(decide));
        }
        let stats = &mut self.ports[at].stats;
        stats.too_short += too_short;
        stats.drop += dropped - too_short;
        stats.aborted += aborted;
        dropped + aborted == packets.len() as u64
    }

    /// Sends a burst unchanged if all of it leaves by one port; returns how many packets the device took.
    #[inline]
    fn send_burst(&mut self, at: usize, packets: &mut Vec<XdpBuff>) -> usize {
        let (to, back) = match self.verdicts[0] {
            Action::Tx => (at, true),
            Action::Redirect(to) => match self.routes.get(to.0 as usize) {
                Some(&PortRoute::Here(to)) => (to, false),
                _ => return 0,
            },
            _ => return 0,
        };
        if self.verdicts.iter().any(|verdict| *verdict != self.verdicts[0]) {
            return 0;
        }
        self.meter.lap(LoopPart::Handle, packets.len());
        let all = packets.len();
        let sent = self.ports[to].send_burst(packets, back);
        self.poll_list.activate(&mut self.ports[to], to);
        if !back && packets.is_empty() {
            self.ports[at].stats.redirect_out += all as u64;
        }
        self.verdicts.truncate(packets.len()); // all verdicts are carried out, or none
        self.meter.lap_with_calls(LoopPart::Transmit, sent, || self.ports[to].new_calls());
        self.meter.sent(sent);
        sent
    }

    fn carry_out(&mut self, at: usize, packets: &mut Vec<XdpBuff>) {
        let ingress = Ingress { port: self.ports[at].id };
        let verdicts = std::mem::take(&mut self.verdicts);
        for (packet, &verdict) in packets.drain(..).zip(&verdicts) {
            match verdict {
                Action::Aborted | Action::Drop => self.ended.push(packet),
                Action::Pass => self.pass(at, packet, ingress),
                Action::Tx => {
                    if let Err(packet) = self.ports[at].send_back(packet) {
                        self.ended.push(packet);
                    }
                    self.poll_list.activate(&mut self.ports[at], at);
                }
                Action::Redirect(to) => self.redirect(at, packet, to),
            }
        }
        self.verdicts = verdicts;
    }

    /// Wakes the threads that frames were handed over to.
    fn ring(&mut self) {
        for route in &mut self.routes {
            if let PortRoute::There(outlet) = route {
                outlet.flush();
            }
        }
    }

    fn pass(&mut self, at: usize, packet: XdpBuff, ingress: Ingress) {
        let stats = &mut self.ports[at].stats;
        stats.pass += 1;
        if let Err(packet) = self.stack.deliver(packet, ingress) {
            stats.pass_refused += 1;
            self.ended.push(packet);
        }
    }

    fn redirect(&mut self, at: usize, packet: XdpBuff, to: PortId) {
        let Some(route) = self.routes.get_mut(to.0 as usize) else {
            self.ports[at].stats.redirect_nowhere += 1;
            return self.ended.push(packet);
        };
        self.ports[at].stats.redirect_out += 1;
        let frame = XdpFrame::from(packet);
        let sent = match route {
            PortRoute::Here(to) => {
                let sent = self.ports[*to].send_on(frame);
                self.poll_list.activate(&mut self.ports[*to], *to);
                sent
            }
            PortRoute::There(outlet) => {
                let handed = outlet.send(frame);
                self.ports[at].stats.handoff_full += u64::from(handed.is_err());
                handed
            }
        };
        if let Err(frame) = sent {
            self.done.push(frame);
        }
    }
}
