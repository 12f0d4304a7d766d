//! The queues to open of one device.

use pagepool::Error;

use super::opened_device::OpenedDevice;
use crate::error::parameter;

/// Queues of a device whose name was found in the table.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'a> {
    /// The part of the name after the colon.
    pub argument: &'a str,
    /// The numbers of its queues.
    pub numbers: &'a [u32],
}

/// What is before the first comma of an argument.
pub(super) fn without_options(argument: &str) -> &str {
    argument.split_once(',').map_or(argument, |(first, _)| first)
}

/// Opens each device of a kind with one queue.
pub(super) fn open_single(
    devices: &[Queues<'_>],
    kind: &str,
    open: impl Fn(&str) -> Result<OpenedDevice, Error>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let open_one = |name: &str, queue: u32| match queue {
        0 => open(name),
        _ => Err(parameter("queue", queue, format!("0: {kind} has one queue"))),
    };
    let queues_of = |of: &Queues<'_>| of.numbers.iter().map(|&queue| open_one(of.argument, queue)).collect();
    devices.iter().map(queues_of).collect()
}
