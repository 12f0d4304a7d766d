//! The drivers' features for XDP, and for AF_XDP sockets with zero copy.

use super::family::{HEADER, NetdevFamily};
use crate::error::LinkError;
use crate::message::{Malformed, NetlinkMessage, u64_at};
use crate::sys::uapi;

/// The features of a driver for XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpFeatures {
    /// It runs XDP programs itself: native mode.
    pub native: bool,
    /// It receives into and sends from the memory of AF_XDP sockets. It may still refuse: virtio_net without
    /// an IOMMU, and many drivers for chunks of 2048 bytes or a large MTU.
    pub zero_copy: bool,
    /// For packets that AF_XDP sends: bits of the kernel's `enum netdev_xsk_flags`; 0 before Linux 6.8.
    pub sending: u64,
}

impl XdpFeatures {
    /// The features of the driver of the interface with this index, in the calling thread's network
    /// namespace. Fails before Linux 6.3, which does not report them. Requires no capability.
    ///
    /// ```
    /// use pagepool_link::{Netlink, XdpFeatures};
    /// let lo = Netlink::open()?.link("lo")?.index;
    /// match XdpFeatures::query(lo) {
    ///     Ok(features) => assert!(!features.zero_copy),
    ///     Err(error) => println!("{error}"), // an older kernel
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn query(index: u32) -> Result<Self, LinkError> {
        let mut family = NetdevFamily::open()?;
        let mut request = family.request(uapi::NETDEV_CMD_DEV_GET, uapi::NLM_F_ACK);
        request.number(uapi::NETDEV_A_DEV_IFINDEX, index);
        let found =
            family.exchange(request, ("look up", &format!("the features of link {index}")), Self::parse)?;
        found.first().copied().ok_or(LinkError::Malformed { what: "no features and no error" })
    }

    /// Parses an answer about a device, which may lack features.
    pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<Self, Malformed> {
        let attributes = message.split(HEADER)?.1;
        let bits = |kind| match attributes.find(kind)?.map(|bits| u64_at(bits, 0)) {
            Some(bits) => bits.ok_or(Malformed("features of less than eight bytes")),
            None => Ok(0),
        };
        let xdp = bits(uapi::NETDEV_A_DEV_XDP_FEATURES)?;
        Ok(Self {
            native: xdp & uapi::NETDEV_XDP_ACT_BASIC != 0,
            zero_copy: xdp & uapi::NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
            sending: bits(uapi::NETDEV_A_DEV_XSK_FEATURES)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Request;
    use crate::netdev::family::read;

    #[test]
    fn answers_are_read_whatever_they_hold() {
        let of_kind = |kind, value: &[u8]| {
            let mut request = Request::new(16, 0, &[1, 1, 0, 0]);
            request.attribute(kind, value);
            request
        };
        let features = |kind| read(&mut of_kind(kind, &5u64.to_ne_bytes()), XdpFeatures::parse).unwrap();
        assert_eq!(features(6), XdpFeatures { sending: 5, ..XdpFeatures::default() });
        let older = XdpFeatures { native: true, ..XdpFeatures::default() };
        assert_eq!(features(3), older, "an older kernel");
        assert!(read(&mut of_kind(6, &[1; 4]), XdpFeatures::parse).is_err());
    }

    #[test]
    fn the_loopback_has_no_features() {
        match XdpFeatures::query(1) {
            Ok(features) => assert_eq!(features, XdpFeatures::default(), "it has no driver's XDP"),
            Err(error) => println!("SKIP features: the kernel has no family netdev (Linux 6.3): {error}"),
        }
        assert!(XdpFeatures::query(0x7fff_ffff).is_err());
    }
}
