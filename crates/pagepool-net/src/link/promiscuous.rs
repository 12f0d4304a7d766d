//! An interface that takes packets for every MAC address, as long as somebody asks for it.

use std::os::fd::OwnedFd;

use super::error::NetError;
use super::link_info::LinkInfo;
use super::sys::packet;

/// Has an interface take packets for every MAC address, until this is dropped or the process ends, in
/// whatever way. Network cards otherwise drop packets that are for others, which a forwarder has to pass on.
///
/// The kernel counts who asks for it, so one's end does not disturb another. Requires `CAP_NET_RAW`.
///
/// ```
/// use pagepool_net::link::{Netlink, Promiscuous};
/// let loopback = Netlink::open()?.link("lo")?;
/// match Promiscuous::hold(&loopback) {
///     Ok(_held) => assert!(Netlink::open()?.link("lo")?.promiscuity > 0),
///     Err(error) => assert!(error.is_permission(), "{error}"),
/// }
/// # Ok::<(), pagepool_net::link::NetError>(())
/// ```
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Asks for an interface of the calling thread's network namespace.
    pub fn hold(link: &LinkInfo) -> Result<Self, NetError> {
        let socket = packet::promiscuous(link.index);
        let about = || format!("packets for every MAC address on interface {:?}", link.name);
        let socket =
            socket.map_err(|error| NetError::call("setsockopt(PACKET_MR_PROMISC)", about(), error))?;
        Ok(Self { _socket: socket })
    }
}
