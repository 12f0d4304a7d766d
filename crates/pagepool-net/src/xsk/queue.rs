//! A queue's identity, and the check that the interface has it.

use pagepool::Error;
use pagepool_link::{Channels, shell_word};

use crate::error::parameter;

/// The cookie of its network namespace, interface, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) namespace: u64,
    pub(super) index: u32,
    pub(super) number: u32,
}

pub(super) fn check_queue(interface: &str, queue: u32, channels: Option<Channels>) -> Result<(), Error> {
    // if the driver does not report its queues, bind checks
    let Some(Channels { rx, tx, .. }) = channels else { return Ok(()) };
    if queue < rx.min(tx) {
        return Ok(());
    }
    let must_be = match rx.min(tx) {
        0 => {
            format!("one that both receives and sends: {interface} has {rx} receive and {tx} transmit queues")
        }
        1 => {
            let word = shell_word(interface);
            format!("0: {interface} has one queue (`ethtool -L {word}` changes the number)")
        }
        n => format!("0 to {}: {interface} has {rx} receive and {tx} transmit queues", n - 1),
    };
    Err(parameter("queue", queue, must_be))
}
