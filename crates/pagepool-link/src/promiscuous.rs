//! Promiscuous mode of an interface.

use std::os::fd::OwnedFd;

use crate::error::LinkError;
use crate::link_info::LinkInfo;
use crate::sys::socket;

/// Puts an interface into promiscuous mode until this is dropped, or the process exits or is killed. Else
/// network cards drop packets for other MAC addresses, which a forwarder must pass on.
///
/// The kernel counts the users, so they do not disturb each other. Requires `CAP_NET_RAW`.
///
/// ```
/// use pagepool_link::{Netlink, Promiscuous};
/// let loopback = Netlink::open()?.link("lo")?;
/// match Promiscuous::hold(&loopback) {
///     Ok(_held) => assert!(Netlink::open()?.link("lo")?.promiscuity > 0),
///     Err(error) => assert!(error.is_permission(), "{error}"),
/// }
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Puts an interface of the calling thread's network namespace into promiscuous mode.
    pub fn hold(link: &LinkInfo) -> Result<Self, LinkError> {
        let socket = socket::promiscuous(link.index);
        let about = || format!("packets for every MAC address on interface {:?}", link.name);
        let socket =
            socket.map_err(|error| LinkError::call("setsockopt(PACKET_MR_PROMISC)", about(), error))?;
        Ok(Self { _socket: socket })
    }
}
