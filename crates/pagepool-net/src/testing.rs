//! For tests of devices: the conformance suite, and the rig that it runs a device in.
//!
//! Behind the feature `testing`, so that other crates can run the suite over their own devices.

mod conformance;
mod rig;

use std::os::fd::AsFd;

use pagepool::Error;

pub use crate::device::FarEnd;
use crate::error::parameter;
pub use crate::link::egress::drop_rule::DropRule;
use crate::link::{XdpMode, lookup};
use crate::sys::bpf as sys;
pub use crate::xsk::{LoadedMatch, TailAdjuster};
pub use conformance::{device, slow_device};
pub use rig::{Allowed, Rig};

/// Detaches what XDP programs an interface has without a BPF link, as `ip link set INTERFACE xdp off` does.
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

/// Reads any bytes as the kernel's answers over netlink, of every kind, and gives how many messages there
/// were: for fuzzers, since no bytes may do harm.
///
/// ```
/// assert_eq!(pagepool_net::testing::netlink_answers(b"anything at all, really"), 1);
/// ```
pub fn netlink_answers(datagram: &[u8]) -> usize {
    crate::link::read_all(datagram)
}
