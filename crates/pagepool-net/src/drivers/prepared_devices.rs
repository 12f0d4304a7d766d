//! Devices that are ready to be opened: nothing of them is missing but their queues.

use std::fmt;

use pagepool::Error;

use super::opened_device::OpenedDevice;

/// Opens what one driver has prepared: for each device the queues that were asked for.
pub(super) type PreparedOf = Box<dyn FnOnce() -> Result<Vec<Vec<OpenedDevice>>, Error> + Send>;

/// What [`prepare_devices`](crate::prepare_devices) gives: devices that take no queue yet. Their memory is
/// registered, their sockets and rings are made. It may go to another thread of the same network namespace.
pub struct PreparedDevices {
    /// Of each driver, with the places of its devices among all.
    pub(super) of_drivers: Vec<(Vec<usize>, PreparedOf)>,
    /// How many devices there are.
    pub(super) count: usize,
}

impl fmt::Debug for PreparedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedDevices({})", self.count)
    }
}

impl PreparedDevices {
    /// Takes the queues, which takes a system call each; waits for those that somebody else has still, for as
    /// long as [`busy_limit`](crate::AfXdpParams::busy_limit). Gives what
    /// [`open_devices`](crate::open_devices) gives. An error leaves no trace.
    pub fn open(self) -> Result<Vec<Vec<OpenedDevice>>, Error> {
        let mut opened: Vec<_> = (0..self.count).map(|_| Vec::new()).collect();
        for (places, open) in self.of_drivers {
            for (at, devices) in places.into_iter().zip(open()?) {
                opened[at] = devices;
            }
        }
        Ok(opened)
    }
}
