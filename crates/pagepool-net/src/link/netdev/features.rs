//! What drivers say of AF_XDP sockets with zero copy.

use super::family::{HEADER, NetdevFamily};
use crate::link::error::NetError;
use crate::link::exchange::RequestText;
use crate::link::message::{Malformed, NetlinkMessage};
use crate::link::sys::uapi;

/// What the driver of the interface of this number does for packets that AF_XDP sends, as bits of the
/// kernel's `enum netdev_xsk_flags`; 0 before Linux 6.8. An error where the kernel has no such family.
pub(crate) fn of(index: u32) -> Result<u64, NetError> {
    let mut family = NetdevFamily::open()?;
    let mut request = family.request(uapi::NETDEV_CMD_DEV_GET, uapi::NLM_F_ACK);
    request.number(uapi::NETDEV_A_DEV_IFINDEX, index);
    let asked = RequestText { request: "look up", about: &format!("the features of link {index}") };
    let found = family.exchange(request, asked, features)?;
    found.first().copied().ok_or(NetError::Malformed { what: "no features and no error" })
}

/// The features in an answer about a device; none where it does not name them.
pub(crate) fn features(message: &NetlinkMessage<'_>) -> Result<u64, Malformed> {
    let Some(bits) = message.split(HEADER)?.1.find(uapi::NETDEV_A_DEV_XSK_FEATURES)? else { return Ok(0) };
    let bits = bits.first_chunk().ok_or(Malformed("features of less than eight bytes"))?;
    Ok(u64::from_ne_bytes(*bits))
}

#[cfg(test)]
mod tests {
    use super::super::family::read;
    use super::*;
    use crate::link::message::Request;

    #[test]
    fn answers_are_read_whatever_they_hold() {
        let of_kind = |kind, value: &[u8]| {
            let mut request = Request::new(16, 0, &[1, 1, 0, 0]);
            request.attribute(kind, value);
            request
        };
        assert_eq!(read(&mut of_kind(6, &5u64.to_ne_bytes()), features), Ok(5));
        assert_eq!(read(&mut of_kind(3, &5u64.to_ne_bytes()), features), Ok(0), "an older kernel");
        assert!(read(&mut of_kind(6, &[1; 4]), features).is_err());
    }

    #[test]
    fn the_loopback_has_no_features() {
        match of(1) {
            Ok(features) => assert_eq!(features, 0),
            Err(error) => println!("SKIP features: the kernel has no family netdev (Linux 6.3): {error}"),
        }
        assert!(of(0x7fff_ffff).is_err());
    }
}
