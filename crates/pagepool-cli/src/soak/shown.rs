//! A device that also shows what the kernel counts for its socket, whenever it is asked for its statistics.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pagepool::{Bound, Buff, DmaDomain, Frame, FrameBulk};
use pagepool_net::{Capabilities, Device, DeviceStats, Wake, XskDevice, XskStats};

/// The device, and where it shows that.
#[derive(Debug)]
pub struct Shown {
    device: XskDevice,
    kernel: Arc<Mutex<XskStats>>,
}

impl Shown {
    /// Shows it there.
    pub fn new(device: XskDevice, kernel: Arc<Mutex<XskStats>>) -> Self {
        Self { device, kernel }
    }
}

impl Device for Shown {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }
    fn domain(&self) -> Option<&Arc<dyn DmaDomain>> {
        self.device.domain()
    }
    fn receive(&mut self, pool: &Bound, into: &mut Vec<Buff>, budget: usize) -> usize {
        self.device.receive(pool, into, budget)
    }
    fn transmit(&mut self, frames: &mut VecDeque<Frame>) -> usize {
        self.device.transmit(frames)
    }
    fn complete(&mut self, done: &mut FrameBulk, budget: usize) -> usize {
        self.device.complete(done, budget)
    }
    fn wait(&mut self, pool: &Bound, timeout: Duration) -> Wake {
        self.device.wait(pool, timeout)
    }
    fn stats(&self) -> DeviceStats {
        *self.kernel.lock().unwrap_or_else(PoisonError::into_inner) = self.device.xsk_stats();
        self.device.stats()
    }
    fn close(&mut self) {
        self.device.close();
    }
}
