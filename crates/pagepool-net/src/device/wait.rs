//! Sleeping on one device and the pool that it is polled with.
//!
//! Order  the pool's signal is taken back before `arm`, whose failing refill then arms the pool's wake-up,
//!        and not when it ends a sleep: until the next `wait` it stands, and refills that fail cost no fence.

use std::time::{Duration, Instant};

use pagepool::Bound;

use super::seam::{Armed, Device};
use crate::sys::event::wait_readable;

/// What ended a [`wait`](DeviceExt::wait).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something may have arrived, been sent, or been returned to the pool; or a waker was called.
    Ready,
    /// Nothing happened in that time, or a signal ended it.
    Timeout,
    /// The device is gone: nothing will ever happen. Close it.
    Gone,
}

/// Methods of every [`Device`] that follow from the others; no device implements them.
pub trait DeviceExt: Device {
    /// Waits until there is something to poll for, a buffer returned to a pool that had run dry, or a
    /// [`Waker`](crate::Waker) woke this thread.
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
                _ => return Wake::Timeout, // it is over, or a signal ended it
            }
        }
    }

    /// Buffers that the transmit ring has room for now: a frame takes one for each of its buffers.
    #[inline]
    fn tx_room(&self) -> usize {
        self.state().tx_room
    }
}

impl<D: Device + ?Sized> DeviceExt for D {}
