//! The forwarder as observers see it: its devices and ports, if the process publishes.
//!
//! Who    the thread that polls; only it knows its counters.
//! When   every 50 ms in rounds that poll every port, and before it sleeps. A sleep after moved packets is
//!        cut short to show them in time.
//! Cost   off: a test of a flag in a round that polls every port. On: a clock read in every 16th of those,
//!        and `show` 20 times a second.

use std::time::{Duration, Instant};

use pagepool::{Bound, PublishedEntry};

use super::egress::PathStats;
use super::published_device::{PublishedDevice, set};
use super::stats::ForwardStats;
use crate::device::Device;

/// The greatest age of what observers see while packets move.
const EVERY: Duration = Duration::from_millis(50);

/// Sweeps from one clock read to the next: about 8,000 packets. This makes the cost of a packet negligible,
/// even in a slow loop.
const SWEEPS: u32 = 16;

#[derive(Debug)]
pub(super) struct PublishedPort {
    device: PublishedDevice,
    port: Option<PublishedEntry>,
}

impl PublishedPort {
    /// `None` if the process does not publish, or the file is full.
    pub(super) fn new(device: &dyn Device, pool: &Bound) -> Option<Self> {
        let device = PublishedDevice::new(device, pool)?;
        let counters = [ForwardStats::NAMES, PathStats::NAMES, &["waiting"]].concat();
        let port = device.enter_beside("port", &counters);
        Some(Self { device, port })
    }

    /// Shows the counters. `waiting`: buffers of frames that wait for the transmit ring.
    pub(super) fn show(&mut self, device: &dyn Device, port: ForwardStats, paths: PathStats, waiting: u64) {
        self.device.show(device);
        if let Some(entry) = &self.port {
            set(entry, port.entries().chain(paths.entries()).chain([("waiting", waiting)]));
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ShowTimes {
    /// The next time to show them; `None` if no port is shown.
    due: Option<Instant>,
    /// Sweeps since the last clock read.
    sweeps: u32,
    /// Moves at the last show.
    moves: usize,
}

impl ShowTimes {
    pub(super) fn add(&mut self, port: Option<&PublishedPort>) {
        self.due = self.due.or_else(|| port.map(|_| Instant::now()));
    }

    /// Whether it is time to show, in a round that polls every port.
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

    /// All moves so far were shown.
    pub(super) fn shown(&mut self, moves: usize) {
        self.due = self.due.map(|_| Instant::now() + EVERY);
        self.moves = moves;
    }

    /// The longest sleep that does not delay the next show: zero if it is due.
    pub(super) fn longest_sleep(&self, moves: usize) -> Duration {
        let Some(due) = self.due else { return Duration::MAX };
        match due.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Duration::ZERO,
            left if moves != self.moves => left,
            _ => Duration::MAX,
        }
    }
}
