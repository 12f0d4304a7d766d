//! For fuzzers: every parser of netlink messages.

use crate::egress::rulesets;
use crate::exchange::FinalMessage;
use crate::link_info::{LinkInfo, namespace_number};
use crate::message::{Malformed, NetlinkMessage, NetlinkMessages};
use crate::netdev::family;
use crate::netdev::features::XdpFeatures;
use crate::netdev::kernel_pool::KernelPagePool;
use crate::qdisc;
use crate::route::{self, Route};

/// Parses any bytes as netlink answers of the kernel, of every kind, and returns how many messages there
/// were. For fuzzers: no bytes may do harm.
///
/// ```
/// assert_eq!(pagepool_link::testing::netlink_answers(b"anything at all, really"), 1);
/// ```
pub fn netlink_answers(datagram: &[u8]) -> usize {
    let read = |message: Result<NetlinkMessage<'_>, Malformed>| {
        let Ok(message) = message else { return };
        let _ = (
            LinkInfo::parse(&message),
            namespace_number(&message),
            Route::parse(&message),
            route::address(&message),
            qdisc::parse(&message),
            rulesets::is_at_egress(&message, b"near0"),
            family::number(&message),
            XdpFeatures::parse(&message),
            KernelPagePool::parse(&message),
            KernelPagePool::parse_stats(&message),
        );
        if let Ok(Some(end)) = FinalMessage::parse(&message) {
            let _ = end.refused(("read", "anything")).to_string();
        }
    };
    NetlinkMessages(datagram).map(read).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::refusal;
    use crate::message::Request;
    use crate::sys::uapi;

    #[test]
    fn hostile_bytes_do_no_harm() {
        let mut bytes = refusal(false, i32::MIN + 1);
        bytes.extend(refusal(true, 0));
        let kinds =
            [uapi::RTM_NEWLINK, uapi::RTM_NEWADDR, uapi::RTM_NEWROUTE, uapi::NLMSG_ERROR, uapi::NLMSG_DONE];
        for kind in kinds {
            let mut message = Request::new(kind, 0xffff, &[1; 16]);
            message.text(3, "name").nest(43, |xdp| {
                xdp.number(5, 1).attribute(6, &[]);
            });
            message.attribute(9, &[8, 0, 0, 0, 1, 0, 0, 0, 7]).attribute(2, &[1; 4]);
            bytes.extend_from_slice(message.numbered(1));
        }
        let mut pool = Request::new(20, 0, &[5, 1, 0, 0]);
        pool.number(1, 18).attribute(5, &[1; 8]);
        bytes.extend_from_slice(pool.numbered(1));
        let mut stats = Request::new(20, 0, &[9, 1, 0, 0]);
        stats.nest(1, |info| {
            info.number(1, 18);
        });
        stats.number(8, 5);
        bytes.extend_from_slice(stats.numbered(1));
        assert_eq!(netlink_answers(&bytes), 9);
        for cut in 0..bytes.len() {
            netlink_answers(&bytes[..cut]);
            for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[cut] = value;
                netlink_answers(&changed);
            }
        }
        let mut state = 1u32;
        for _ in 0..4_000 {
            let mut changed = bytes.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % changed.len();
                changed[at] = state as u8 ^ (state >> 24) as u8;
            }
            netlink_answers(&changed);
        }
    }
}
