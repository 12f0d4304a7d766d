//! For the tests and benchmarks of this repository, behind the feature `testing`.

use std::os::fd::AsFd;

use pagepool::Error;
use pagepool_link::XdpMode;

use crate::error::parameter;
use crate::interface::lookup;
use crate::sys::bpf as sys;
pub use crate::xsk::{LoadedMatch, TailAdjuster, XskKernelSide, umem_in_memory, xsk_in_memory};

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
