//! The holder names of buffers of devices and forwarders, in pools that record holders.

use pagepool::{Bound, Tag};

/// Tags buffers that the pool allocates from now on: they wait for packets at this device. Does nothing in a
/// pool that records no holders.
pub(crate) fn tag_received(pool: &Bound, device: &str) {
    if pool.handle().records_holders() {
        pool.set_tag(Some(Tag::new(&format!("receive rings of {device}"))));
    }
}

/// The tag of frames that wait for this device's transmit ring, or are on it.
pub(crate) fn sent_by(device: &str) -> Tag {
    Tag::new(&format!("to send by {device}"))
}
