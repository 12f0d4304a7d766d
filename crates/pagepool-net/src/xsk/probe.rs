//! How to wait until a driver is done with a queue.
//!
//! What   a zero-copy driver releases a closed socket's buffers a moment later, and may write to them until
//!        then (I4). When it is done, the queue can be bound again: a second socket tries that. In copy mode
//!        the kernel receives no more when `close` returns; the device waits before the close for the times
//!        that it writes (`tx_metadata/requests.rs`). It may still read: a driver that takes packets in
//!        fragments (virtio_net, Linux 5.12) gets the sent pages themselves. A packet that was not completed
//!        before the close may then be sent with other bytes.
//! Who    made with the device, in its interface's network namespace; used by the thread that closes it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::sys::socket::{self as sys, Registration, Ring, flags};
use crate::sys::errno;

/// Drivers take tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Probe(OwnedFd);

impl Probe {
    /// Registers only one page, and never gives it to the kernel as a buffer.
    pub(super) fn new(memory: Registration) -> std::io::Result<Self> {
        let socket = sys::socket()?;
        let (len, chunk_size) = (pagepool::PAGE_SIZE as u64, pagepool::PAGE_SIZE as u32);
        let flags = memory.flags & !flags::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
        let page = Registration { len, chunk_size, headroom: 0, flags, ..memory };
        sys::register(socket.as_fd(), page)?;
        for ring in [Ring::Receive, Ring::Fill, Ring::Completion] {
            sys::set_ring_size(socket.as_fd(), ring, 2)?;
        }
        Ok(Self(socket))
    }

    /// Waits until the queue has no socket. False if that takes too long.
    pub(super) fn wait(self, queue: Queue) -> bool {
        let start = Instant::now();
        loop {
            match sys::bind(self.0.as_fd(), queue.index, queue.number, flags::XDP_COPY, None) {
                Err(error) if may_be_busy(&error) => {}
                _ => return true, // it could be bound, or the interface and its driver are gone
            }
            if start.elapsed() >= LIMIT {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether the queue may have a socket. If the kernel failed before it looked, waiting is safe.
fn may_be_busy(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EBUSY | errno::ENOMEM | errno::EINTR | errno::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_memory_does_not_say_that_a_queue_is_free() {
        let may_be_busy = |number| may_be_busy(&std::io::Error::from_raw_os_error(number));
        assert!([errno::EBUSY, errno::ENOMEM, errno::EINTR, errno::EAGAIN].into_iter().all(may_be_busy));
        assert!(![errno::ENODEV, errno::ENXIO, errno::EINVAL].into_iter().any(may_be_busy));
    }
}
