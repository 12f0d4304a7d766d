//! Requests to the generic netlink family `netdev`.

use crate::error::LinkError;
use crate::exchange::{NetlinkSocket, Purpose};
use crate::message::{Malformed, NetlinkMessage, Request, u16_at};
use crate::sys::uapi;

/// Bytes of `struct genlmsghdr`: a command, its version, and two reserved bytes.
pub(crate) const HEADER: usize = 4;
const VERSION: u8 = 1;

/// A socket to the family, for the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct NetdevFamily {
    socket: NetlinkSocket,
    number: u16,
}

impl NetdevFamily {
    /// Opens the family. Fails if the kernel has none.
    pub(crate) fn open() -> Result<Self, LinkError> {
        let mut socket = NetlinkSocket::open(uapi::NETLINK_GENERIC)?;
        let header = [uapi::CTRL_CMD_GETFAMILY, VERSION, 0, 0];
        let mut request = Request::new(uapi::GENL_ID_CTRL, uapi::NLM_F_ACK, &header);
        request.text(uapi::CTRL_ATTR_FAMILY_NAME, uapi::NETDEV_FAMILY_NAME);
        let asked = ("look up", "the family netdev");
        let families = socket.exchange(request, asked, uapi::GENL_ID_CTRL, number)?;
        let &number = families.first().ok_or(LinkError::Malformed { what: "no family and no error" })?;
        Ok(Self { socket, number })
    }

    pub(crate) fn request(&self, command: u8, flags: u16) -> Request {
        Request::new(self.number, flags, &[command, VERSION, 0, 0])
    }

    pub(crate) fn exchange<T>(
        &mut self,
        request: Request,
        purpose: Purpose<'_>,
        parse: impl Fn(&NetlinkMessage<'_>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, LinkError> {
        self.socket.exchange(request, purpose, self.number, parse)
    }
}

pub(crate) fn number(message: &NetlinkMessage<'_>) -> Result<u16, Malformed> {
    let number = message.split(HEADER)?.1.find(uapi::CTRL_ATTR_FAMILY_ID)?;
    number.and_then(|number| u16_at(number, 0)).ok_or(Malformed("a family without its number"))
}

/// Parses a request as if it were the kernel's answer.
#[cfg(test)]
pub(crate) fn read<T>(
    of: &mut Request,
    parse: impl Fn(&NetlinkMessage<'_>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let bytes = of.numbered(1).to_vec();
    let message = crate::message::NetlinkMessages(&bytes).next().unwrap().unwrap();
    parse(&message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_whatever_the_answer_holds() {
        let of_kind = |kind, value: &[u8]| {
            let mut request = Request::new(16, 0, &[1, VERSION, 0, 0]);
            request.attribute(kind, value);
            request
        };
        assert_eq!(read(&mut of_kind(1, &[31, 0]), number), Ok(u16::from_ne_bytes([31, 0])));
        assert!(read(&mut of_kind(2, b"netdev\0"), number).is_err());
        assert!(read(&mut of_kind(1, &[3]), number).is_err());
    }
}
