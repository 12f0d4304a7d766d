//! What buffers are called that a device or a forwarder has, in pools that record holders.

use pagepool::{Bound, Tag};

/// Buffers that the pool allocates from now on wait for packets at this device. Without effect in a pool that
/// records no holders.
pub(crate) fn tag_received(pool: &Bound, device: &str) {
    if pool.handle().records_holders() {
        pool.set_tag(Some(Tag::new(&format!("receive rings of {device}"))));
    }
}

/// What waits for this device's transmit ring, or lies on it.
pub(crate) fn sent_by(device: &str) -> Tag {
    Tag::new(&format!("to send by {device}"))
}
