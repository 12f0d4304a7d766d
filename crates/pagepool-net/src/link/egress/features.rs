//! What drivers say of AF_XDP sockets with zero copy: the family `netdev` of generic netlink (Linux 6.3).

use crate::link::error::NetError;
use crate::link::exchange::{NetlinkSocket, RequestText};
use crate::link::message::{Malformed, NetlinkMessage, Request, u16_at};
use crate::link::sys::uapi;

/// Bytes of `struct genlmsghdr`: a command, its version, and two that are reserved.
const HEADER: usize = 4;
const VERSION: u8 = 1;

/// What the driver of the interface of this number does for packets that AF_XDP sends, as bits of the
/// kernel's `enum netdev_xsk_flags`; 0 before Linux 6.8. An error where the kernel has no such family.
pub(crate) fn of(index: u32) -> Result<u64, NetError> {
    let mut socket = NetlinkSocket::open_generic()?;
    let header = [uapi::CTRL_CMD_GETFAMILY, VERSION, 0, 0];
    let mut request = Request::new(uapi::GENL_ID_CTRL, uapi::NLM_F_ACK, &header);
    request.text(uapi::CTRL_ATTR_FAMILY_NAME, uapi::NETDEV_FAMILY_NAME);
    let asked = RequestText { request: "look up", about: "the family netdev" };
    let families = socket.exchange(request, asked, uapi::GENL_ID_CTRL, family)?;
    let family = families.first().copied().ok_or(NetError::Malformed { what: "no family and no error" })?;

    let header = [uapi::NETDEV_CMD_DEV_GET, VERSION, 0, 0];
    let mut request = Request::new(family, uapi::NLM_F_ACK, &header);
    request.number(uapi::NETDEV_A_DEV_IFINDEX, index);
    let asked = RequestText { request: "look up", about: &format!("the features of link {index}") };
    let found = socket.exchange(request, asked, family, features)?;
    found.first().copied().ok_or(NetError::Malformed { what: "no features and no error" })
}

/// The number of a family.
pub(crate) fn family(message: &NetlinkMessage<'_>) -> Result<u16, Malformed> {
    let number = message.split(HEADER)?.1.find(uapi::CTRL_ATTR_FAMILY_ID)?;
    number.and_then(|number| u16_at(number, 0)).ok_or(Malformed("a family without its number"))
}

/// The features in an answer about a device; none where it does not name them.
pub(crate) fn features(message: &NetlinkMessage<'_>) -> Result<u64, Malformed> {
    let Some(bits) = message.split(HEADER)?.1.find(uapi::NETDEV_A_DEV_XSK_FEATURES)? else { return Ok(0) };
    let bits = bits.first_chunk().ok_or(Malformed("features of less than eight bytes"))?;
    Ok(u64::from_ne_bytes(*bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::message::NetlinkMessages;

    fn read<T>(
        of: &mut Request,
        parse: impl Fn(&NetlinkMessage<'_>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let bytes = of.numbered(1).to_vec();
        let message = NetlinkMessages(&bytes).next().unwrap().unwrap();
        parse(&message)
    }

    #[test]
    fn answers_are_read_whatever_they_hold() {
        let of_kind = |kind, value: &[u8]| {
            let mut request = Request::new(16, 0, &[1, VERSION, 0, 0]);
            request.attribute(kind, value);
            request
        };
        assert_eq!(read(&mut of_kind(1, &[31, 0]), family), Ok(u16::from_ne_bytes([31, 0])));
        assert!(
            read(&mut of_kind(2, b"netdev\0"), family).is_err()
                && read(&mut of_kind(1, &[3]), family).is_err()
        );
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
