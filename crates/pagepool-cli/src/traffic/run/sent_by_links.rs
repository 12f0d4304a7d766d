//! What interfaces count as sent. In copy mode the kernel completes a packet when the driver has taken it,
//! even if the driver then drops it: on an interface without a way out, for example.

use std::time::{Duration, Instant};

use pagepool_link::{LinkInfo, Netlink};

/// How late a driver may count a packet, and the time between two looks.
const LATE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(50);

/// What interfaces had counted before a run.
#[derive(Debug, Default)]
pub struct SentByLinks(Vec<Before>);

#[derive(Debug)]
struct Before {
    /// The name at that time. Only the index is constant.
    name: String,
    index: u32,
    sent: u64,
}

impl SentByLinks {
    /// Looks before the first packet is sent. An interface that cannot be queried is not judged.
    pub fn look<'a>(links: impl Iterator<Item = &'a LinkInfo>) -> Self {
        let Ok(mut netlink) = Netlink::open() else { return Self::default() };
        let before = |link: &LinkInfo| {
            let sent = netlink.sent_at(link.index).ok()??;
            Some(Before { name: link.name.clone(), index: link.index, sent })
        };
        Self(links.filter_map(before).collect())
    }

    /// How many of the packets that an interface took since then (`taken`) it does not count as sent. `name`:
    /// its name at that time. The interface also counts packets of others, so more may be missing. 0 if it is
    /// gone, or if its counter restarted. Waits up to 2 s for the driver to count.
    pub fn uncounted(&self, name: &str, taken: u64) -> u64 {
        let Some(before) = self.0.iter().find(|of| of.name == name) else { return 0 };
        let Ok(mut netlink) = Netlink::open() else { return 0 };
        let start = Instant::now();
        loop {
            let missing = before.missing(&mut netlink, taken).unwrap_or(0);
            if missing == 0 || start.elapsed() >= LATE {
                return missing;
            }
            std::thread::sleep(NAP);
        }
    }
}

impl Before {
    fn missing(&self, netlink: &mut Netlink, taken: u64) -> Option<u64> {
        let counted = netlink.sent_at(self.index).ok()??.checked_sub(self.sent)?;
        Some(taken.saturating_sub(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_an_interface_does_not_count_are_missing() {
        let mut netlink = Netlink::open().unwrap();
        let mut link = netlink.link("lo").unwrap();
        let mut lo = SentByLinks::look([&link].into_iter());
        assert_eq!(lo.uncounted("lo", 0), 0);
        assert!(lo.0[0].missing(&mut netlink, 1 << 60).is_some_and(|missing| missing > 0));
        assert_eq!(lo.uncounted("nope0", 5), 0);
        lo.0[0].sent = u64::MAX;
        assert_eq!(lo.uncounted("lo", 5), 0, "it counts anew");
        link.index = 0x7fff_ffff;
        assert!(SentByLinks::look([&link].into_iter()).0.is_empty(), "there is none");
    }
}
