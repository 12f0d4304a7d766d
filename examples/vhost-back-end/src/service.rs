//! One connection, as rust-vmm's daemon sees it: what is offered, and which thread serves which queues.

use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringMutex};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vmm_sys_util::epoll::EventSet;

use crate::queue_pair::{Mode, QueuePair, SharedMemory};

/// The features that a back end can have: packets in several buffers, and the event index.
pub const FEATURES: u64 = 1 << VIRTIO_NET_F_MRG_RXBUF | 1 << VIRTIO_RING_F_EVENT_IDX;
/// The most entries of a queue.
const MOST_ENTRIES: usize = 32_768;

/// Serves the queue pairs of one connection: one thread for each.
pub(crate) struct Service {
    pub pairs: Vec<Arc<QueuePair>>,
    pub mode: Mode,
    pub features: u64,
    pub memory: SharedMemory,
    pub acked: AtomicU64,
    /// Set once the connection has ended: the threads that serve it end, too.
    pub ended: AtomicBool,
}

impl VhostUserBackend for Service {
    type Bitmap = ();
    type Vring = VringMutex;

    fn num_queues(&self) -> usize {
        2 * self.pairs.len()
    }

    fn max_queue_size(&self) -> usize {
        MOST_ENTRIES
    }

    fn features(&self) -> u64 {
        let several = u64::from(self.pairs.len() > 1) << VIRTIO_NET_F_MQ;
        1 << VIRTIO_F_VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | several | self.features
    }

    fn acked_features(&self, features: u64) {
        self.acked.store(features, Ordering::Relaxed); // its lock orders this before the queues are enabled
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&self, _: bool) {}

    fn update_memory(&self, _: SharedMemory) -> Result<()> {
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.pairs.len()).map(|pair| 0b11 << (2 * pair)).collect()
    }

    fn stop_vring(&self, queue: u32) -> Result<()> {
        self.pairs[queue as usize / 2].disconnect(false);
        Ok(())
    }

    /// Called when a queue was enabled or kicked. An error ends the thread.
    fn handle_event(&self, _: u16, _: EventSet, rings: &[VringMutex], thread: usize) -> Result<()> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Error::other("the connection has ended"));
        }
        if let [rx, tx] = rings {
            let mergeable = self.acked.load(Ordering::Relaxed) & 1 << VIRTIO_NET_F_MRG_RXBUF != 0;
            self.pairs[thread].connect(rx, tx, &self.memory, mergeable);
            self.pairs[thread].serve(self.mode);
        }
        Ok(())
    }
}
