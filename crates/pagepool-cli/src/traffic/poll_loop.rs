//! The polling thread: owns the pools of its ports, and polls their devices until the run has drained.

mod frame_source;
mod idleness;

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagepool::{Bound, Error, Pool};
use pagepool_net::{Device, Forwarder, PacketHandler, PortId, Stack, Tally, TxQueue, Wake};

pub use self::frame_source::{FrameSource, NoSource, SourceState};
use self::idleness::{IdleAction, Idleness};
use crate::report::{in_words, no_thread};
use crate::sys::{self, CapabilitySet};
use crate::traffic::{Checked, Phase, PortSample, RunEnd, SharedState};

/// How often a thread publishes its sample, and checks that its devices still exist.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// Rounds between two reads of the clock.
const ROUNDS: u32 = 32;
/// Pauses after an empty round: they leave the rings' cache lines to the producer.
const PAUSES: u32 = 8;
/// About one of this many rounds is measured.
const SAMPLE: u32 = 16;

pub trait PortHandler: PacketHandler + Send + 'static {
    /// Its knowledge of numbered frames, if it checks them.
    fn tally(&self) -> Option<&Tally> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// It sends what it has: nothing is redirected to it any more. The time is short, because a link that is
    /// down sends nothing.
    Transmit,
    /// It polls until nothing moves: the sources have stopped.
    Everything,
}

impl Drain {
    /// The longest drain. What has not arrived by then is lost.
    fn limit(self) -> Duration {
        match self {
            Self::Transmit => Duration::from_millis(500),
            Self::Everything => Duration::from_secs(10),
        }
    }
}

pub struct PollPort {
    pub pool: Pool,
    /// Pages, of the pool's order, that the pool takes from the arena before the first packet.
    pub pages: usize,
    pub device: Box<dyn Device>,
}

pub struct PollLoop<H, S, F> {
    pub thread: usize,
    pub ports: Vec<PollPort>,
    pub handler: H,
    pub stack: S,
    pub source: F,
    /// The most packets taken from a port at once.
    pub burst: usize,
    /// The CPUs that it may run on; empty: any.
    pub cpus: Vec<usize>,
    /// Never sleep.
    pub spin: bool,
    /// The longest sleep. Devices can shorten it.
    pub nap: Duration,
    /// How long it sleeps, even if packets arrive, before packets can end a sleep; zero: they end every
    /// sleep.
    pub rx_nap: Duration,
    /// Count the cycles of each part.
    pub measure: bool,
    pub drain: Drain,
    /// The capabilities that it keeps; `None`: all.
    pub kept: Option<CapabilitySet>,
}

/// Ends the run if its thread panics; otherwise the other threads would run on.
struct BreakOnPanic(Arc<SharedState>);

impl Drop for BreakOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_end(RunEnd::Broken);
        }
    }
}

pub fn wait_for_warm_up(warmed: &Receiver<Result<(), Error>>, threads: usize) -> Result<(), String> {
    (0..threads).try_for_each(|_| match warmed.recv() {
        Ok(warm) => warm.map_err(in_words),
        Err(_) => Err("a polling thread ended before its warm-up was over".to_owned()),
    })
}

impl<H: PortHandler, S: Stack + Send + 'static, F: FrameSource> PollLoop<H, S, F> {
    /// Starts the thread, in the network namespace of the caller. It sends a message when its pools and rings
    /// are filled, and returns the handler at the end.
    pub fn start(
        self,
        name: String,
        state: Arc<SharedState>,
        warmed: Sender<Result<(), Error>>,
    ) -> Result<JoinHandle<H>, String> {
        let work = move || {
            let state = BreakOnPanic(state);
            self.work(&state.0, warmed)
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        thread.map_err(|error| no_thread(&error))
    }

    fn work(self, state: &SharedState, warmed: Sender<Result<(), Error>>) -> H {
        // The thread that waits warns of what cannot be given up.
        let _ = self.kept.map(sys::keep_capabilities);
        if !self.cpus.is_empty() {
            sys::keep_on(&self.cpus); // on failure the thread is slower, but correct
        }
        sys::sleep_exactly();
        let mut forwarder = Forwarder::with_stack(self.handler, self.stack);
        let mut ports = Vec::with_capacity(self.ports.len());
        for PollPort { pool, pages, device } in self.ports {
            let pool = pool.bind();
            prefill(&pool, pages);
            ports.push(forwarder.add_port(device, pool));
        }
        let _ = forwarder.set_budget(self.burst); // every such number is valid
        forwarder.sample(if self.measure { SAMPLE } else { 0 });
        forwarder.poll(); // fills the receive rings
        let (source, thread, nap, rx_nap) = (self.source, self.thread, self.nap, self.rx_nap);
        let mut polling = Polling { forwarder, ports, source, thread, nap, rx_nap, state };
        polling.publish();
        let waker = polling.forwarder.waker().map(|waker| state.add_waker(waker));
        let _ = warmed.send(waker); // the receiver is gone only if the run failed to start
        drop(warmed); // if another thread panics before its message, the receiver sees that
        polling.poll_until_draining(self.spin);
        polling.drain(self.drain);
        polling.publish();
        polling.forwarder.close_all();
        polling.publish_kept();
        polling.forwarder.into_handler()
    }
}

/// Fills a pool to this number of pages, as far as the arena has them. They go to its cache and ring. Their
/// memory is not touched.
fn prefill(pool: &Bound, pages: usize) {
    let pages = pages.saturating_sub(pool.inflight().out as usize); // a device may have taken some already
    let mut buffers = Vec::with_capacity(pages);
    pool.alloc_bulk(&mut buffers, pages);
    pagepool::put_bulk(&mut buffers);
}

struct Polling<'a, H: PacketHandler, S: Stack, F> {
    forwarder: Forwarder<H, S>,
    ports: Vec<PortId>,
    source: F,
    thread: usize,
    nap: Duration,
    rx_nap: Duration,
    state: &'a SharedState,
}

/// What a thread has reported.
struct Progress {
    /// It has sent everything.
    finished: bool,
    /// When it last published, and whether nothing has moved since.
    published: Instant,
    is_published: bool,
}

impl<H: PortHandler, S: Stack, F: FrameSource> Polling<'_, H, S, F> {
    fn poll_until_draining(&mut self, spin: bool) {
        let (mut idleness, mut round) = (Idleness::new(self.rx_nap), 0u32);
        let mut progress = Progress { finished: false, published: Instant::now(), is_published: true };
        while !self.state.reached(Phase::Draining) {
            let source = match progress.finished {
                true => SourceState::Finished,
                false => self.source.send_due(&mut self.forwarder),
            };
            let moved = self.forwarder.poll();
            progress.is_published &= moved == 0;
            let is_idle = moved == 0 && source != SourceState::Active;
            let rest = self.rest(&mut idleness, is_idle, spin);
            match rest {
                IdleAction::Poll if is_idle => (0..PAUSES).for_each(|_| spin_loop()),
                IdleAction::Poll => {}
                IdleAction::Nap(nap) => std::thread::sleep(source.due().min(nap)),
                IdleAction::Sleep if self.sleep(source, progress.is_published) == Wake::Gone => {
                    return self.look_for_gone_devices(); // nothing is left to poll
                }
                IdleAction::Sleep => {}
            }
            round = round.wrapping_add(1);
            if rest != IdleAction::Poll || round.is_multiple_of(ROUNDS) {
                self.report(source, &mut progress); // reading the clock costs as much as a packet
            }
        }
    }

    /// Sleeps until a packet comes or a frame is due. Wakes early to publish the latest counts, for observers.
    fn sleep(&mut self, source: SourceState, is_published: bool) -> Wake {
        let nap = if is_published { self.nap } else { self.nap.min(PUBLISH_EVERY) };
        self.forwarder.wait(source.due().min(nap))
    }

    /// Reports that all is sent, and publishes, if it is time.
    fn report(&mut self, source: SourceState, progress: &mut Progress) {
        if source == SourceState::Finished && !progress.finished && self.is_dry() {
            progress.finished = true;
            self.state.set_finished();
        }
        if progress.published.elapsed() >= PUBLISH_EVERY {
            (progress.published, progress.is_published) = (Instant::now(), true);
            self.look_for_gone_devices();
            self.publish();
        }
    }

    /// What to do after a round, idle or not.
    #[inline]
    fn rest(&self, idleness: &mut Idleness, is_idle: bool, spin: bool) -> IdleAction {
        let received =
            || self.ports.iter().filter_map(|&port| self.forwarder.stats(port)).map(|of| of.rx).sum();
        match (is_idle, spin) {
            (true, false) => return idleness.rest(Instant::now, received),
            (true, true) => {}
            (false, _) => idleness.found(Instant::now, received),
        }
        IdleAction::Poll
    }

    fn drain(&mut self, drain: Drain) {
        let start = Instant::now();
        while start.elapsed() < drain.limit() {
            if self.forwarder.poll() > 0 {
                continue;
            }
            if self.is_dry() || (drain == Drain::Everything && self.forwarder.wait(self.nap) == Wake::Gone) {
                return;
            }
        }
    }

    /// Whether everything that was to be sent has been sent.
    fn is_dry(&self) -> bool {
        self.ports.iter().all(|&port| {
            let waiting = self.forwarder.waiting(port).map_or(0, TxQueue::len);
            waiting == 0 && self.forwarder.device(port).is_none_or(|nic| nic.stats().in_tx == 0)
        })
    }

    /// Queries the devices: one that was removed does not report it otherwise.
    fn look_for_gone_devices(&mut self) {
        for &port in &self.ports {
            if self.forwarder.wait_on(port, Duration::ZERO) == Wake::Gone
                && let Some(nic) = self.forwarder.device(port)
            {
                self.state.set_end(RunEnd::Gone(nic.info().name.clone()));
            }
        }
    }

    /// Adds to the last sample what the back ends of closed devices kept.
    fn publish_kept(&self) {
        let kept = self.ports.iter().map(|&port| self.forwarder.device(port).map_or(0, |of| of.stats().kept));
        let kept: Vec<_> = kept.collect();
        if kept.iter().any(|&kept| kept > 0) {
            self.state.publish(self.thread, |sample| {
                sample.ports.iter_mut().zip(&kept).for_each(|(port, &kept)| port.nic.kept = kept);
            });
        }
    }

    fn publish(&self) {
        self.state.publish(self.thread, |sample| {
            sample.ports.clear();
            sample.ports.extend(self.ports.iter().map(|&port| PortSample::read(&self.forwarder, port)));
            sample.cycles = self.forwarder.cycles();
            sample.make_ticks = self.source.make_ticks();
            sample.checked = self
                .forwarder
                .handler()
                .tally()
                .map(|&Tally { good, corrupt, .. }| Checked { good, corrupt });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_ends_the_run_and_no_other_does() {
        let state = Arc::new(SharedState::new(2));
        let of_thread = || BreakOnPanic(state.clone());
        drop(of_thread());
        assert_eq!(state.end(), None, "one that has done its work");
        let panics = of_thread();
        let joined = std::thread::spawn(move || {
            let _ends = panics;
            panic!("on purpose");
        });
        assert!(joined.join().is_err());
        assert_eq!(state.end(), Some(RunEnd::Broken));
    }
}
