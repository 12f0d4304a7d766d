//! What an AF_XDP socket reads about its interface when it is opened, with errors of devices.

use std::io;

use pagepool::Error;
use pagepool_link::{Channels, Ethtool, LinkError, LinkInfo, Netlink, Offload, XdpMode};

use crate::error::parameter;

/// Looks up an interface in this thread's network namespace.
pub(crate) fn look_up(name: &str) -> Result<LinkInfo, Error> {
    let found = Netlink::open().and_then(|mut netlink| netlink.link(name));
    found.map_err(|error| match error {
        LinkError::NoLink { known, .. } => {
            let known = known.join(", ");
            parameter("interface", name, format!("an interface of this thread's network namespace: {known}"))
        }
        LinkError::OutOfRange { range, .. } => parameter("interface", name, range),
        other => system(other),
    })
}

/// Opens netlink in this thread's network namespace.
pub(crate) fn netlink() -> Result<Netlink, Error> {
    Netlink::open().map_err(system)
}

/// The error of a link as that of a device.
pub(crate) fn system(error: LinkError) -> Error {
    let source = error.errno().map_or(io::ErrorKind::InvalidData.into(), io::Error::from_raw_os_error);
    match error {
        LinkError::OutOfRange { field, value, range } => parameter(field, value, range),
        LinkError::Call { call, about, remedy, source } => {
            Error::System { call, remedy: format!("{about}: {remedy}"), source }
        }
        other => Error::System { call: "netlink", remedy: other.to_string(), source },
    }
}

/// Where the XDP program of the interface with this index runs; `None` if there is no program, or no such
/// interface in this thread's network namespace.
pub(crate) fn xdp_mode_on(index: u32) -> Option<XdpMode> {
    let found = Netlink::open().and_then(|mut netlink| netlink.link_at(index));
    Some(found.ok()??.xdp.first()?.mode)
}

/// The queues of an interface, if its driver reports them.
pub(crate) fn channels(name: &str) -> Option<Channels> {
    Ethtool::open().and_then(|ethtool| ethtool.channels(name)).ok().flatten()
}

/// Slots of the hardware's receive ring; 0 if the driver has none, or does not report them.
pub(crate) fn hardware_ring(name: &str) -> u32 {
    Ethtool::open().and_then(|ethtool| ethtool.rx_ring(name)).ok().flatten().map_or(0, |(slots, _)| slots)
}

/// What a driver's refusal depends on; empty or 0 if unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct DriverOf {
    pub(crate) name: String,
    /// Queues that receive.
    pub(crate) queues: u32,
    /// The first two numbers of the kernel's version.
    pub(crate) kernel: (u32, u32),
}

/// The kernel's version text; empty if unknown.
pub(crate) fn kernel_release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim_end().into()
}

/// The first two numbers of the kernel's version; 0 if unknown.
pub(crate) fn kernel_version() -> (u32, u32) {
    let kernel = kernel_release();
    let mut numbers = kernel.split(|of: char| !of.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The name of the interface with this index; empty if it is gone.
pub(crate) fn name_of(index: u32) -> String {
    let link = Netlink::open().and_then(|mut netlink| netlink.link_at(index)).ok().flatten();
    link.map_or(String::new(), |link| link.name)
}

/// Whether the driver of the interface with this index currently computes checksums.
pub(crate) fn computes_checksums(index: u32) -> bool {
    let on = Ethtool::open().and_then(|ethtool| ethtool.offloads(&name_of(index)));
    on.is_ok_and(|on| on.contains(&Offload::TxChecksum))
}

pub(crate) fn driver_of(index: u32) -> DriverOf {
    let (link, kernel) = (name_of(index), kernel_version());
    let name = Ethtool::open().and_then(|ethtool| ethtool.driver(&link)).ok().flatten().unwrap_or_default();
    DriverOf { name, queues: channels(&link).map_or(0, |channels| channels.rx), kernel }
}

/// The id of the XDP program on an interface, if there is one.
pub(crate) fn xdp_program_on(name: &str) -> Option<u32> {
    look_up(name).ok()?.xdp.first().map(|attached| attached.id)
}
