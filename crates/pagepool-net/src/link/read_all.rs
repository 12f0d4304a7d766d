//! Runs every parser of netlink messages, for fuzzers and tests.

use super::egress::qdisc::Qdisc;
use super::egress::rulesets;
use super::exchange::{FinalMessage, RequestText};
use super::link_info::{LinkInfo, namespace_number};
use super::message::{Malformed, NetlinkMessage, NetlinkMessages};
use super::netdev::kernel_pool::KernelPagePool;
use super::netdev::{family, features};
use super::route::{Address, Route};

/// Parses any bytes as answers of the kernel, of every kind, to show that none does harm; returns the number
/// of messages.
pub(crate) fn read_all(datagram: &[u8]) -> usize {
    let read = |message: Result<NetlinkMessage<'_>, Malformed>| {
        let Ok(message) = message else { return };
        let _ = (
            LinkInfo::parse(&message),
            namespace_number(&message),
            Route::parse(&message),
            Address::parse(&message),
            Qdisc::parse(&message),
            rulesets::is_at_egress(&message, b"near0"),
            family::number(&message),
            features::xsk_features(&message),
            KernelPagePool::parse(&message),
            KernelPagePool::parse_stats(&message),
        );
        if let Ok(Some(end)) = FinalMessage::of(&message) {
            let _ = end.refused(RequestText { request: "read", about: "anything" }).to_string();
        }
    };
    NetlinkMessages(datagram).map(read).count()
}

#[cfg(test)]
mod tests {
    use super::super::exchange::refusal;
    use super::super::message::Request;
    use super::super::sys::uapi;
    use super::*;

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
        assert_eq!(read_all(&bytes), 9);
        for cut in 0..bytes.len() {
            read_all(&bytes[..cut]);
            for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[cut] = value;
                read_all(&changed);
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
            read_all(&changed);
        }
    }
}
