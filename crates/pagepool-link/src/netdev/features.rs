//! The drivers' features for XDP, and for AF_XDP sockets with zero copy.

use super::family::{HEADER, NetdevFamily};
use crate::error::LinkError;
use crate::exchange::RequestText;
use crate::message::{Malformed, NetlinkMessage};
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
        let bits = query(index, |message| features(message, uapi::NETDEV_A_DEV_XDP_FEATURES))?;
        let has = |bit| bits & bit != 0;
        Ok(Self {
            native: has(uapi::NETDEV_XDP_ACT_BASIC),
            zero_copy: has(uapi::NETDEV_XDP_ACT_XSK_ZEROCOPY),
        })
    }
}

/// The driver's features for packets that AF_XDP sends, for the interface with this index: bits of the
/// kernel's `enum netdev_xsk_flags`; 0 before Linux 6.8. Fails if the kernel has no such family.
pub fn sending_features(index: u32) -> Result<u64, LinkError> {
    query(index, xsk_features)
}

fn query(
    index: u32,
    parse: impl Fn(&NetlinkMessage<'_>) -> Result<u64, Malformed>,
) -> Result<u64, LinkError> {
    let mut family = NetdevFamily::open()?;
    let mut request = family.request(uapi::NETDEV_CMD_DEV_GET, uapi::NLM_F_ACK);
    request.number(uapi::NETDEV_A_DEV_IFINDEX, index);
    let asked = RequestText { request: "look up", about: &format!("the features of link {index}") };
    let found = family.exchange(request, asked, parse)?;
    found.first().copied().ok_or(LinkError::Malformed { what: "no features and no error" })
}

/// The features for sending in an answer about a device; 0 if absent.
pub(crate) fn xsk_features(message: &NetlinkMessage<'_>) -> Result<u64, Malformed> {
    features(message, uapi::NETDEV_A_DEV_XSK_FEATURES)
}

/// The features of a kind in an answer about a device; 0 if absent.
fn features(message: &NetlinkMessage<'_>, kind: u16) -> Result<u64, Malformed> {
    let Some(bits) = message.split(HEADER)?.1.find(kind)? else { return Ok(0) };
    let bits = bits.first_chunk().ok_or(Malformed("features of less than eight bytes"))?;
    Ok(u64::from_ne_bytes(*bits))
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
        assert_eq!(read(&mut of_kind(6, &5u64.to_ne_bytes()), xsk_features), Ok(5));
        assert_eq!(read(&mut of_kind(3, &5u64.to_ne_bytes()), xsk_features), Ok(0), "an older kernel");
        assert!(read(&mut of_kind(6, &[1; 4]), xsk_features).is_err());
    }

    #[test]
    fn the_loopback_has_no_features() {
        match sending_features(1) {
            Ok(features) => {
                assert_eq!(features, 0);
                assert_eq!(XdpFeatures::query(1).unwrap(), XdpFeatures::default(), "it has no driver's XDP");
            }
            Err(error) => println!("SKIP features: the kernel has no family netdev (Linux 6.3): {error}"),
        }
        assert!(sending_features(0x7fff_ffff).is_err());
    }
}
