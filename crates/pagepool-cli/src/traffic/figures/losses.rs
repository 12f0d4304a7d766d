//! Lost packets, by reason.

use pagepool_watch::commands::LateThread;

use crate::report::grouped;
use crate::traffic::{PortSample, sum};

/// Where packets are lost, in the last line of a verdict.
const RING_FULL: &str = "receive ring full";
const NO_BUFFER: &str = "no buffer";
const REJECTED: &str = "rejected on arrival";
const NOT_FORWARDED: &str = "not forwarded";
const TRANSMIT: &str = "transmit";

pub struct Loss {
    pub key: &'static str,
    /// Where the packets are lost, in the last line of a verdict.
    place: &'static str,
    what: &'static str,
    of: fn(&PortSample) -> u64,
}

impl Loss {
    pub fn count(&self, ports: &[PortSample]) -> u64 {
        sum(ports, self.of)
    }

    /// The reason in words, from the counts since an earlier sample.
    pub fn reason(&self, before: &[PortSample], now: &[PortSample]) -> String {
        match (self.key, refused(before, now)) {
            ("rx_no_buffer", 0) => format!("{}: this thread did not keep up", self.what),
            ("rx_no_buffer", refused) => {
                format!("{}: the pool was empty ({} times)", self.what, grouped(refused))
            }
            _ => self.what.to_owned(),
        }
    }

    /// The reason in words, and what helps: for a thread that is too slow, if it is one.
    pub fn reason_and_remedy(
        &self,
        before: &[PortSample],
        now: &[PortSample],
        late: &LateThread<'_>,
    ) -> String {
        let why = self.reason(before, now);
        match (self.key, refused(before, now)) {
            ("rx_ring_full", _) | ("rx_no_buffer", 0) => format!("{why}. {}", late.remedy()),
            ("rx_no_buffer", _) => format!("{why}. Enlarge --ring."),
            _ => why,
        }
    }
}

/// How often allocation failed in the pools of ports that lacked buffers. Pages that are idle now prove
/// nothing: they may have returned since, or belong to other ports.
fn refused(before: &[PortSample], now: &[PortSample]) -> u64 {
    let lacked = |(before, now): &(&PortSample, &PortSample)| now.nic.rx_no_buffer > before.nic.rx_no_buffer;
    let refused = |(before, now): (&PortSample, &PortSample)| {
        now.pool.0.alloc_failed.saturating_sub(before.pool.0.alloc_failed)
    };
    before.iter().zip(now).filter(lacked).map(refused).sum()
}

/// Packets that found the receive ring full.
pub fn ring_full(at: &PortSample) -> u64 {
    at.nic.kernel.map_or(0, |xsk| xsk.rx_ring_full)
}

/// Makes the table of losses: key, place, and what happened; then the count of a port.
macro_rules! losses {
    ($($key:literal $place:ident $what:literal $of:expr;)+) => {
        /// All reasons, in the order of a packet's path.
        pub const LOSSES: &[Loss] = &[$(Loss { key: $key, place: $place, what: $what, of: $of }),+];
    };
}

losses! {
    "rx_ring_full" RING_FULL "the receive ring was full: the thread is too slow" ring_full;
    "rx_no_buffer" NO_BUFFER "fill ring ran dry" |at| at.nic.rx_no_buffer.saturating_sub(ring_full(at));
    "rx_too_long" REJECTED "longer than a chunk" |at| at.nic.rx_too_long;
    "rx_too_many_buffers" REJECTED "more chunks than a packet may have" |at| at.nic.rx_too_many_buffers;
    "rx_refused" REJECTED "the receive descriptor was invalid"
        |at| at.nic.rx_bad_length + at.nic.rx_bad_descriptor + at.nic.rx_unmapped;
    "too_short" REJECTED "no whole Ethernet header" |at| at.port.too_short;
    "no_way" NOT_FORWARDED "no such port, the port's queue was full, or the handler failed"
        |at| at.port.redirect_nowhere + at.port.handoff_full + at.port.pass_refused + at.port.aborted;
    "tx_overflow" TRANSMIT "too many packets waited for the transmit ring: the interface is too slow, or down"
        |at| at.port.tx_overflow;
    "tx_gone" TRANSMIT "the sending interface was removed" |at| at.port.tx_gone;
    "tx_too_long" TRANSMIT "longer than the interface can send" |at| at.nic.tx_too_long;
    "tx_unmapped" TRANSMIT "in memory that the interface cannot access" |at| at.nic.tx_unmapped;
    "tx_dropped" TRANSMIT "dropped after sending: by a qdisc or filter, or the other end was down or full"
        |at| at.nic.tx_dropped;
    "tx_invalid" TRANSMIT "the kernel refused the transmit descriptor"
        |at| at.nic.kernel.map_or(0, |xsk| xsk.tx_invalid_descs);
    "tx_bad_completion" TRANSMIT "completed, but never sent" |at| at.nic.tx_bad_descriptor;
    "copy_failed" TRANSMIT "no page was free for a copy" |at| at.paths.copy_failed;
}

/// Packets that arrived and were lost before they were received.
pub fn unreceived(ports: &[PortSample]) -> u64 {
    LOSSES.iter().filter(|loss| loss.key.starts_with("rx_")).map(|loss| loss.count(ports)).sum()
}

/// How many packets were lost at each place. A place may appear several times.
pub fn places(ports: &[PortSample]) -> impl Iterator<Item = (&'static str, u64)> {
    LOSSES.iter().map(|loss| (loss.place, loss.count(ports)))
}

/// How many lost packets found a queue full: a receive ring, the queue to the thread that they are passed to,
/// or the queue to a transmit ring.
pub fn at_full_queues(ports: &[PortSample]) -> [(&'static str, u64); 4] {
    let (ring_full, no_buffer) = (sum(ports, ring_full), sum(ports, |at| at.nic.rx_no_buffer));
    [
        (RING_FULL, ring_full),
        (NO_BUFFER, no_buffer.saturating_sub(ring_full)),
        (NOT_FORWARDED, sum(ports, |at| at.port.pass_refused)),
        (TRANSMIT, sum(ports, |at| at.port.tx_overflow)),
    ]
}

/// How many packets were lost, by the keys of the reasons.
pub fn counts(ports: &[PortSample]) -> impl Iterator<Item = (&'static str, u64)> {
    LOSSES.iter().map(|loss| (loss.key, loss.count(ports)))
}

pub fn total(ports: &[PortSample]) -> u64 {
    LOSSES.iter().map(|loss| loss.count(ports)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool_net::KernelStats;
    use pagepool_watch::commands::MoreQueues;

    #[test]
    fn what_found_the_ring_full_is_lost_once() {
        let xsk = KernelStats { rx_ring_full: 3, ..KernelStats::default() };
        let mut at = PortSample::default();
        at.nic.kernel = Some(xsk);
        (at.nic.rx_no_buffer, at.port.tx_overflow) = (5, 7); // the device's count includes both
        let count = |key| LOSSES.iter().find(|loss| loss.key == key).map(|loss| loss.count(&[at, at]));
        assert_eq!((count("rx_ring_full"), count("rx_no_buffer")), (Some(6), Some(4)));
        assert_eq!(total(&[at, at]), 24);
        at.nic.tx_dropped = 56_522;
        assert_eq!(total(&[at]), 12 + 56_522, "what the kernel dropped was not sent");
        let at_places: u64 = places(&[at]).map(|(_, count)| count).sum();
        assert_eq!(at_places, total(&[at]));
        let full = [(RING_FULL, 3), (NO_BUFFER, 2), (NOT_FORWARDED, 0), (TRANSMIT, 7)];
        assert_eq!(at_full_queues(&[at]), full);
    }

    #[test]
    fn an_empty_pool_explains_only_losses_of_its_own_port() {
        let loss = LOSSES.iter().find(|loss| loss.key == "rx_no_buffer").expect("it is in the list");
        let (mut warm, mut now) = ([PortSample::default(); 2], [PortSample::default(); 2]);
        let late = LateThread { in_kernel: 0.0, driver: None, queues: MoreQueues::No };
        let slow = "fill ring ran dry: this thread did not keep up";
        now[0].nic.rx_no_buffer = 5;
        (warm[0].pool.0.alloc_failed, now[0].pool.0.alloc_failed) = (3, 3);
        now[1].pool.0.alloc_failed = 9; // of the port that lacked none
        assert_eq!(loss.reason(&warm, &now), slow, "the warm-up is over");
        let reason_and_remedy = format!("{slow}. {}", late.remedy());
        assert_eq!(loss.reason_and_remedy(&warm, &now, &late), reason_and_remedy);
        now[0].pool.0.alloc_failed = 1_003;
        now[0].pool.1.ring = 6_000; // which returned since
        let empty = "fill ring ran dry: the pool was empty (1,000 times)";
        assert_eq!(loss.reason(&warm, &now), empty);
        assert_eq!(loss.reason_and_remedy(&warm, &now, &late), format!("{empty}. Enlarge --ring."));
    }

    #[test]
    fn packets_lost_on_arrival_are_not_received() {
        let mut at = PortSample::default();
        (at.nic.rx_no_buffer, at.nic.rx_too_long, at.port.tx_overflow, at.port.too_short) = (5, 7, 8, 9);
        assert_eq!(unreceived(&[at, at]), 24);
    }
}
