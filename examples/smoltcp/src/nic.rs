//! What the service loop calls beside smoltcp's own trait: a TAP interface works as well as a [`Phy`].

use std::os::fd::AsRawFd;
use std::time::Duration;

use pagepool_net::{Device, Wake};
use smoltcp::phy::{self, TunTapInterface};

use crate::phy::Phy;

/// The interface is gone for good.
#[derive(Debug)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the interface is gone")
    }
}

impl std::error::Error for Gone {}

/// A device that smoltcp polls, between two turns.
pub trait Nic: phy::Device {
    /// Moves packets to and from the hardware. Returns how many.
    fn turn(&mut self) -> usize;

    /// Sleeps until there is something to poll for, at most for `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<(), Gone>;
}

impl<D: Device + 'static> Nic for Phy<D> {
    fn turn(&mut self) -> usize {
        self.turn()
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Gone> {
        if self.wait(timeout) == Wake::Gone { Err(Gone) } else { Ok(()) }
    }
}

impl Nic for TunTapInterface {
    /// Each token moves its own packet.
    fn turn(&mut self) -> usize {
        0
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Gone> {
        phy::wait(self.as_raw_fd(), Some(timeout.into())).map_err(|_| Gone)
    }
}
