//! For tests of devices: the conformance suite, and the rig in which it runs a device.
//!
//! Feature `testing` makes it available to other crates, for their own devices.

mod conformance;
mod rig;

use std::os::fd::AsFd;

use pagepool::Error;
use pagepool_link::XdpMode;

pub use crate::device::FarEnd;
use crate::error::parameter;
use crate::interface::lookup;
use crate::sys::bpf as sys;
pub use crate::xsk::{LoadedMatch, TailAdjuster};
pub use conformance::{device, slow_device};
pub use rig::{Allowed, Rig};

/// Detaches the XDP programs of an interface that have no BPF link, as `ip link set INTERFACE xdp off` does.
pub fn detach_xdp(interface: &str) -> Result<(), Error> {
    let (link, mut netlink) = (lookup::look_up(interface)?, lookup::netlink()?);
    for there in &link.xdp {
        let program = sys::program(there.id).map_err(|source| Error::System {
            call: "bpf(BPF_PROG_GET_FD_BY_ID)",
            remedy: format!("the XDP program of {interface} could not be opened: was it just detached?"),
            source,
        })?;
        let old = Some(program.as_fd());
        netlink
            .exchange_xdp(link.index, there.mode == XdpMode::Generic, old, None)
            .map_err(|error| parameter("interface", interface, error.to_string()))?;
    }
    Ok(())
}
