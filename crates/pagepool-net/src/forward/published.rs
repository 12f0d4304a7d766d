//! What observers see of a forwarder: its devices and ports, while the process publishes.
//!
//! Who    the thread that polls; nobody else knows what it has counted.
//! When   in rounds that ask every port, if it is time, and before it sleeps. A sleep after packets that
//!        moved is cut where it is time to show them.
//! Cost   off: a test of a flag in a round that asks every port. On: a look at the clock in every 16th of
//!        those, and what is shown, 20 times a second.

use std::time::{Duration, Instant};

use pagepool::{Bound, PublishedEntry};

use super::egress::PathStats;
use super::published_device::{PublishedDevice, set};
use super::stats::ForwardStats;
use crate::device::Device;

/// How old what observers see becomes while packets move.
const EVERY: Duration = Duration::from_millis(50);

/// Sweeps from one look at the clock to the next: some 8,000 packets. So what is shown costs a packet
/// nothing, however slow the loop is.
const SWEEPS: u32 = 16;

/// A port as observers see it.
#[derive(Debug)]
pub(super) struct PublishedPort {
    device: PublishedDevice,
    port: Option<PublishedEntry>,
}

impl PublishedPort {
    /// None if the process does not publish, or the file is full.
    pub(super) fn new(device: &dyn Device, pool: &Bound) -> Option<Self> {
        let device = PublishedDevice::new(device, pool)?;
        let counters = [ForwardStats::NAMES, PathStats::NAMES, &["waiting"]].concat();
        let port = device.enter_beside("port", &counters);
        Some(Self { device, port })
    }

    /// Shows what was counted so far. `waiting`: buffers of frames that wait for the transmit ring.
    pub(super) fn show(&mut self, device: &dyn Device, port: ForwardStats, paths: PathStats, waiting: u64) {
        self.device.show(device);
        if let Some(entry) = &self.port {
            set(entry, port.entries().chain(paths.entries()).chain([("waiting", waiting)]));
        }
    }
}

/// When to show what.
#[derive(Debug, Default)]
pub(super) struct ShowTimes {
    /// When it is time again; none if nothing is shown.
    due: Option<Instant>,
    /// Sweeps since the last look at the clock.
    sweeps: u32,
    /// Moves of packets that were shown.
    moves: usize,
}

impl ShowTimes {
    /// One more port, which is shown or not.
    pub(super) fn add(&mut self, port: Option<&PublishedPort>) {
        self.due = self.due.or_else(|| port.map(|_| Instant::now()));
    }

    /// Whether it is time, in a round that asks every port.
    #[inline]
    pub(super) fn is_due_in_sweep(&mut self) -> bool {
        self.due.is_some() && self.count_sweep()
    }

    fn count_sweep(&mut self) -> bool {
        self.sweeps += 1;
        if self.sweeps < SWEEPS {
            return false;
        }
        self.sweeps = 0;
        self.due.is_some_and(|due| Instant::now() >= due)
    }

    /// All was shown that moved so far.
    pub(super) fn shown(&mut self, moves: usize) {
        self.due = self.due.map(|_| Instant::now() + EVERY);
        self.moves = moves;
    }

    /// The longest sleep that is not in the way of what is to be shown: none if it is time.
    pub(super) fn longest_sleep(&self, moves: usize) -> Duration {
        let Some(due) = self.due else { return Duration::MAX };
        match due.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Duration::ZERO,
            left if moves != self.moves => left,
            _ => Duration::MAX,
        }
    }
}
