//! A thread of a command: owns the pools of its queues, and polls them until it is told to end.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::XdpBuff;
use pagepool_lab::Tally;
use pagepool_net::{Action, Forwarder, Ingress, PacketHandler, PortId, Wake};

use super::capture::Tap;
use super::run_state::{Checked, Course};
use super::setup::Port;
use crate::engine::port_sample::PortSample;
use crate::engine::prefill::prefill;
use crate::sys;

/// How often it shows what it sees, and looks whether its interfaces are there still.
const SHOWN_EVERY: Duration = Duration::from_millis(50);
/// Rounds between two looks at the clock.
const ROUNDS: u32 = 32;
/// Pauses after a fruitless round, in which whoever fills the rings has their lines to itself.
const PAUSES: u32 = 8;
/// Fruitless rounds before it sleeps, and for how long at most.
const PATIENCE: u32 = 64;
const NAP: Duration = Duration::from_millis(20);
/// How long what is on its way may take to go out at the end. A link that is down lets nothing out.
const DRAIN: Duration = Duration::from_millis(500);

/// What a command does with packets on one thread.
pub trait Work: PacketHandler + Send + 'static {
    /// What it knows of numbered frames, if it looks at them.
    fn into_tally(self) -> Option<Tally>;

    /// The same, so far.
    fn tally(&self) -> Option<&Tally> {
        None
    }
}

/// Where a command's own frames come from.
pub trait Feed: Send + 'static {
    /// Sends what is due now.
    fn feed<P: PacketHandler>(&mut self, forwarder: &mut Forwarder<P>) -> Fed;

    /// Ticks spent on making frames.
    fn make_ticks(&self) -> u64 {
        0
    }
}

/// What a feed has for a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Frames, or a place where they wait.
    Some,
    /// None before so long.
    Later(Duration),
    /// None any more.
    Over,
}

/// A command that sends only what it received.
pub struct NoFeed;

impl Feed for NoFeed {
    #[inline]
    fn feed<P: PacketHandler>(&mut self, _: &mut Forwarder<P>) -> Fed {
        Fed::Later(NAP)
    }
}

/// Work whose packets are written to a file before it gets them.
struct Tapped<W> {
    work: W,
    tap: Option<Tap>,
}

impl<W: Work> PacketHandler for Tapped<W> {
    #[inline]
    fn run(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action {
        if let Some(tap) = &mut self.tap {
            tap.take(packet);
        }
        self.work.run(packet, at)
    }

    #[inline]
    fn reads(&self) -> bool {
        self.tap.is_some() || self.work.reads()
    }
}

/// What a thread is given.
pub struct Worker<W, F> {
    /// Which of the threads it is.
    pub number: usize,
    pub ports: Vec<Port>,
    /// Pages that each pool takes from the arena beforehand.
    pub pages: usize,
    /// Packets that are taken from a port at once.
    pub burst: usize,
    pub work: W,
    pub feed: F,
    pub tap: Option<Tap>,
    pub cpu: Option<u32>,
    /// Never sleep.
    pub spin: bool,
}

impl<W: Work, F: Feed> Worker<W, F> {
    /// Works until it is told to end. `warm` is called when the warm-up is over. Gives what it knows of numbered frames.
    pub fn run(self, course: &Arc<Course>, warm: impl FnOnce()) -> Option<Tally> {
        if let Some(cpu) = self.cpu {
            sys::pin_to(cpu as usize); // it was looked at before whether that may be
        }
        let mut forwarder = Forwarder::new(Tapped { work: self.work, tap: self.tap });
        let mut ports = Vec::with_capacity(self.ports.len());
        for Port { pool, nic, .. } in self.ports {
            let pool = pool.bind();
            prefill(&pool, self.pages);
            ports.push(forwarder.add_port(Box::new(nic), pool));
        }
        let _ = forwarder.set_budget(self.burst); // fails for no number like these
        forwarder.measure(true);
        forwarder.poll(); // fills the fill rings
        let mut this = Running { forwarder, ports, feed: self.feed, number: self.number, course };
        this.show();
        warm();
        this.work(self.spin);
        this.drain();
        this.show();
        this.forwarder.into_program().work.into_tally()
    }
}

struct Running<'a, W, F> {
    forwarder: Forwarder<Tapped<W>>,
    ports: Vec<PortId>,
    feed: F,
    number: usize,
    course: &'a Course,
}

impl<W: Work, F: Feed> Running<'_, W, F> {
    fn work(&mut self, spin: bool) {
        let (mut idle, mut round, mut shown, mut over) = (0, 0, Instant::now(), false);
        while !self.course.is_stopped() {
            let fed = if over { Fed::Over } else { self.feed.feed(&mut self.forwarder) };
            let moved = self.forwarder.poll();
            idle = if moved > 0 || fed == Fed::Some { 0 } else { idle + 1 };
            let sleeps = idle > PATIENCE && !spin;
            if idle > 0 && !sleeps {
                (0..PAUSES).for_each(|_| spin_loop());
            }
            if sleeps {
                let nap = if let Fed::Later(nap) = fed { nap.min(NAP) } else { NAP };
                let _ = self.forwarder.wait(nap); // whoever is gone is found below
            }
            round += 1;
            if !sleeps && round % ROUNDS != 0 {
                continue;
            }
            if fed == Fed::Over && !over && self.is_dry() {
                over = true;
                self.course.is_over();
            }
            if shown.elapsed() >= SHOWN_EVERY {
                shown = Instant::now();
                self.look_who_is_gone();
                self.show();
            }
        }
    }

    /// Lets what is on its way go out, and receives nothing more.
    fn drain(&mut self) {
        let start = Instant::now();
        while !self.is_dry() && start.elapsed() < DRAIN {
            self.forwarder.flush();
        }
    }

    /// Whether everything that was to be sent was.
    fn is_dry(&self) -> bool {
        self.ports.iter().all(|&port| {
            let waiting = self.forwarder.waiting(port).map_or(0, |frames| frames.len());
            waiting == 0 && self.forwarder.device(port).is_none_or(|nic| nic.stats().in_tx == 0)
        })
    }

    /// An interface that goes away says so to who asks only.
    fn look_who_is_gone(&mut self) {
        for &port in &self.ports {
            if self.forwarder.wait_on(port, Duration::ZERO) == Wake::Gone
                && let Some(nic) = self.forwarder.device(port)
            {
                self.course.is_gone(&nic.info().name);
            }
        }
    }

    fn show(&self) {
        self.course.show(self.number, |sample| {
            sample.ports.clear();
            sample.ports.extend(self.ports.iter().map(|&port| PortSample::of(&self.forwarder, port)));
            sample.cycles = self.forwarder.cycles();
            sample.make_ticks = self.feed.make_ticks();
            sample.checked = self.forwarder.program().work.tally().map(Checked::of);
        });
    }
}
