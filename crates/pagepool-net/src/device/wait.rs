//! Sleeping on one device and the pool that it is polled with.
//!
//! Order  `acknowledge_wake` comes before `arm`, whose failing refill then arms the pool's wake-up. It does
//!        not come at the end of a sleep: until the next `wait` the signal stands, and failing refills cost
//!        no fence.

use std::time::{Duration, Instant};

use pagepool::Bound;

use super::device::{Armed, Device};
use crate::sys::event::wait_readable;

/// What ended a [`wait`](DeviceExt::wait).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A packet may have arrived or been sent, a buffer may have returned to the pool, or a waker was called.
    Ready,
    /// The time is over, or a signal of the process interrupted the sleep.
    Timeout,
    /// The device is gone for good. Close it.
    Gone,
}

/// Further methods of every [`Device`]; no device implements them.
pub trait DeviceExt: Device {
    /// Waits until there is something to poll for, a buffer returns to an empty pool, a
    /// [`Waker`](crate::Waker) wakes this thread, or `timeout` is over.
    fn wait(&mut self, pool: &Bound, timeout: Duration) -> Wake {
        let start = Instant::now();
        loop {
            pool.acknowledge_wake();
            let (fd, waker_fd, at_most) = match self.arm(pool) {
                Armed::Gone => return Wake::Gone,
                Armed::Ready => return Wake::Ready,
                Armed::Idle { fd, waker_fd, at_most } => (fd, waker_fd, at_most),
            };
            let left = timeout.saturating_sub(start.elapsed());
            let sleep = left.min(at_most);
            match wait_readable([fd, waker_fd, pool.wake_fd()], sleep) {
                Some(readable) if readable.contains(&true) => return Wake::Ready,
                Some(_) if left > sleep => {}
                _ => return Wake::Timeout, // the time is over, or a signal interrupted it
            }
        }
    }
}

impl<D: Device + ?Sized> DeviceExt for D {}
