//! The verdict of a soak.

use std::time::Duration;

use crate::fault_injector::FaultReport;
use crate::flow::Flow;
use pagepool::PoolRef;
use pagepool_cli::report::{LossLimit, LossShare, Verdict, grouped, object};
use pagepool_cli::traffic::figures::losses;
use pagepool_cli::traffic::{PortSample, figures};

/// The longest time to the first packet after a fault.
const RETURN: Duration = Duration::from_secs(1);
/// The longest time to half the rate after a fault, and the longest silence otherwise. On two busy cores a
/// peer or the loop may wait long for a CPU.
const BUSY: Duration = Duration::from_secs(3);
/// How much the process may grow after its warm-up: 64 pages, for stacks and heaps touched late. A leak of
/// one page per flap and kill exceeds this within ten minutes.
const GROWTH_KIB: u64 = 256;

pub struct SoakResult {
    pub mode: String,
    pub faults: FaultReport,
    /// After the warm-up.
    pub warm: Vec<PortSample>,
    /// At the end.
    pub end: Vec<PortSample>,
}

impl SoakResult {
    /// Judges the run, and the pools, which have ended.
    pub fn verdict(&self, pools: &[PoolRef], limit: LossLimit) -> Verdict {
        let mut verdict = Verdict::new("every buffer was returned, and every packet is accounted for");
        verdict.line(&format!("over {}, {:.1} s", self.mode, self.faults.seconds));
        self.packets(&mut verdict);
        self.losses(&mut verdict, limit);
        self.times(&mut verdict);
        self.memory(&mut verdict, pools);
        self.sockets(&mut verdict);
        verdict
    }

    fn packets(&self, verdict: &mut Verdict) {
        let Self { mode, faults, .. } = self;
        let peers = faults.peers[0].plus(&faults.peers[1]);
        let pps = peers.arrived as f64 / faults.seconds.max(1e-9);
        verdict.field("mode", mode);
        verdict.field("seconds", faults.seconds);
        verdict.field("pps", pps);
        verdict.field("sent", peers.sent);
        verdict.field("bursts_down", peers.down);
        // Sent or not: the peer was killed in the burst.
        verdict.field("in_doubt", faults.in_doubt.iter().sum::<u64>());
        verdict.field("in_gaps", peers.in_gaps);
        verdict.field("overtaken", peers.overtaken);
        verdict.field("damaged", peers.damaged);
        verdict.field("repeated", peers.again);
        verdict.count("flaps", faults.flaps, "interfaces taken down for 1 s", "");
        verdict.count("kills", faults.kills, "peer processes killed", "");
        let note = format!("{} packets/s, every byte checked", grouped(pps as u64));
        verdict.count("packets", peers.arrived, "packets", &note);
        let note = format!("{} numbers missing", grouped(peers.in_gaps));
        verdict.count("gaps", peers.gaps, "gaps in the numbers", &note);
        verdict.row("packets damaged or duplicated", peers.damaged + peers.again, "must be 0");
        verdict.fail_if(peers.arrived == 0, || "no packet arrived".into());
        // The second flap is of a peer's own interface, which the peer must see.
        let unseen = faults.flaps > 1 && peers.down == 0;
        verdict.fail_if(unseen, || "no peer's interface was ever down".into());
        verdict.fail_count(peers.damaged, "packets were damaged");
        verdict.fail_count(peers.again, "packets arrived twice, or much too late");
    }

    fn losses(&self, verdict: &mut Verdict, limit: LossLimit) {
        let ways = [DirectionLosses::of(self, 0), DirectionLosses::of(self, 1)];
        let all = |of: fn(&DirectionLosses) -> u64| ways.iter().map(of).sum::<u64>();
        let (before, at_full_queues, after) =
            (all(|way| way.before), all(|way| way.at_full_queues), all(|way| way.after));
        let (unaccounted, never_sent) = (all(|way| way.unaccounted), all(|way| way.never_sent));
        verdict.count("lost_before", before, "lost before the forwarder", "a link was down");
        verdict.count(
            "lost_in_forwarder",
            at_full_queues,
            "lost within the forwarder",
            "a ring or queue was full",
        );
        let why = "a link was down, a queue was full, or no peer ran";
        verdict.count("lost_after", after, "lost after the forwarder", why);
        verdict.field("unaccounted", unaccounted);
        verdict.field("never_sent", never_sent);
        verdict.row("not accounted for", unaccounted + never_sent, "must be 0");
        let sent = self.faults.peers.iter().map(|peer| peer.sent).sum();
        let outside = [("before the forwarder", before), ("after the forwarder", after)];
        verdict.loss(&LossShare::new(
            sent,
            losses::at_full_queues(&self.end).into_iter().chain(outside),
            limit,
        ));
        verdict.fail_count(unaccounted, "packets are not accounted for within the forwarder");
        verdict.fail_count(never_sent, "packets arrived that were never sent");
    }

    fn times(&self, verdict: &mut Verdict) {
        let Flow { returned, recovery, silence, .. } = self.faults.flow;
        let times = [
            ("longest_return_ms", "longest time to the first packet", "first packet after", returned, RETURN),
            ("longest_recovery_ms", "longest time to half the rate", "half the rate after", recovery, BUSY),
            ("longest_silence_ms", "longest silence", "no packet for", silence, BUSY),
        ];
        for (key, what, failure, took, limit) in times {
            let (took, limit) = (took.as_millis() as u64, limit.as_millis() as u64);
            verdict.field(key, took);
            let note = format!("at most {} ms, outside faults", grouped(limit));
            verdict.text_row(what, &format!("{} ms", grouped(took)), &note);
            verdict.fail_if(took > limit, || format!("{failure} {took} ms, but must be at most {limit} ms"));
        }
    }

    fn memory(&self, verdict: &mut Verdict, pools: &[PoolRef]) {
        let [first, last] = &self.faults.holdings;
        let nic_errors = figures::nic_errors(&self.end);
        let grown_kib = last.own_kib.saturating_sub(first.own_kib); // without file mappings
        let descriptors = last.descriptors.saturating_sub(first.descriptors);
        figures::judge_pools(verdict, &self.warm, &self.end, pools);
        verdict.field("nic_errors", nic_errors);
        verdict.field("rss_kib_start", first.rss_kib);
        verdict.field("rss_kib_end", last.rss_kib);
        verdict.field("grown_kib", grown_kib);
        let size = format!("resident memory {} to {} KiB", grouped(first.rss_kib), grouped(last.rss_kib));
        let note = format!("at most {GROWTH_KIB} KiB; {size}");
        verdict.text_row("memory grown by", &format!("{} KiB", grouped(grown_kib)), &note);
        verdict.count("descriptors_grown", descriptors, "file descriptors grown by", "must be 0");
        verdict.fail_count(nic_errors, "descriptors or lengths of the sockets were invalid");
        verdict.fail_if(grown_kib > GROWTH_KIB, || {
            let grown = grouped(grown_kib);
            format!("the process grew by {grown} KiB, but must grow by at most {GROWTH_KIB} KiB")
        });
        verdict.fail_count(descriptors, "more file descriptors are open than after the warm-up");
    }

    fn sockets(&self, verdict: &mut Verdict) {
        let sockets: Vec<_> =
            self.end.iter().filter_map(|port| Some(object(port.nic.kernel?.entries()))).collect();
        for (at, counts) in sockets.iter().enumerate() {
            let moved = counts.iter().filter(|(_, value)| value.as_u64() != Some(0));
            let moved: Vec<_> = moved.map(|(name, value)| format!("{name} {value}")).collect();
            verdict.line(&format!("socket {at}: {}", moved.join(", ")));
        }
        verdict.field("xdp", sockets);
    }
}

/// Lost frames of one direction, by place.
#[derive(Clone, Copy, Debug, Default)]
struct DirectionLosses {
    /// Not seen by the socket: a link was down, or a kernel queue was full.
    before: u64,
    /// A ring or queue of the forwarder was full.
    at_full_queues: u64,
    /// Neither sent nor known to be lost.
    unaccounted: u64,
    /// Sent, but not seen by the peer: a link was down, a kernel queue was full, or no peer ran.
    after: u64,
    /// More left a part of the path than entered it.
    never_sent: u64,
}

impl DirectionLosses {
    /// From peer `from` to the other, through our sockets.
    fn of(soak: &SoakResult, from: usize) -> Self {
        let (to, end) = (1 - from, &soak.end);
        let sent = soak.faults.peers[from].sent;
        let came = end[from].nic.rx_packets + end[from].nic.rx_no_buffer;
        let at_full_queues = end[from].nic.rx_no_buffer + end[to].port.tx_overflow;
        let went = end[to].nic.tx_completed;
        let arrived = soak.faults.peers[to].arrived;
        let more = |out: u64, into: u64| out.saturating_sub(into);
        Self {
            before: more(sent, came),
            at_full_queues,
            unaccounted: came.abs_diff(at_full_queues + went),
            after: more(went, arrived),
            never_sent: more(came, sent + soak.faults.in_doubt[from]) + more(arrived, went),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: &str = "PASS: every buffer was returned, and every packet is accounted for; ";

    fn well_of_ten() -> SoakResult {
        let mut seen = SoakResult {
            mode: "af_xdp".into(),
            faults: FaultReport { seconds: 1.0, ..FaultReport::default() },
            warm: vec![PortSample::default(); 2],
            end: vec![PortSample::default(); 2],
        };
        for at in 0..2 {
            (seen.faults.peers[at].sent, seen.faults.peers[at].arrived) = (10, 10);
            (seen.end[at].nic.rx_packets, seen.end[at].nic.tx_completed) = (10, 10);
        }
        seen
    }

    fn said(change: impl FnOnce(&mut SoakResult)) -> String {
        let mut seen = well_of_ten();
        change(&mut seen);
        let verdict = seen.verdict(&[], LossLimit::default());
        let text = verdict.to_string();
        assert_eq!(verdict.is_ok(), text.contains("PASS"), "{text}");
        text.lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn what_is_lost_where_it_may_be_is_well() {
        let well =
            |change: fn(&mut SoakResult), lost: &str| assert_eq!(said(change), format!("{WELL}{lost}"));
        well(|_| {}, "no packet of 20 was lost");
        let before = "20.0 % of 25 packets were lost (before the forwarder 20.0 %)";
        well(|seen| seen.faults.peers[0].sent = 15, before);
        let after = "25.0 % of 20 packets were lost (after the forwarder 25.0 %)";
        well(|seen| seen.faults.peers[0].arrived = 5, after);
        let full = |seen: &mut SoakResult| {
            (seen.end[1].nic.tx_completed, seen.end[1].port.tx_overflow) = (7, 3);
            seen.faults.peers[1].arrived = 7;
        };
        well(full, "15.0 % of 20 packets were lost (transmit 15.0 %)");
        let doubt = |seen: &mut SoakResult| {
            (seen.faults.peers[1].sent, seen.faults.in_doubt[1]) = (8, 2);
        };
        well(doubt, "no packet of 18 was lost"); // a peer was killed in its burst
        let mut seen = well_of_ten();
        full(&mut seen);
        let limited = seen.verdict(&[], LossLimit { max_loss: Some(14.9) }).to_string();
        assert!(
            limited.contains("\nFAIL: more packets were lost than --max-loss 14.9 allows; "),
            "{limited}"
        );
    }

    type FailureCase = (fn(&mut SoakResult), &'static str);

    #[test]
    fn whatever_went_wrong_is_said() {
        let cases: [FailureCase; 14] = [
            (|seen| seen.faults.peers = Default::default(), "no packet arrived"),
            (|seen| seen.faults.flaps = 2, "no peer's interface was ever down"),
            (|seen| seen.faults.peers[0].damaged = 2, "2 packets were damaged"),
            (|seen| seen.faults.peers[0].again = 2, "2 packets arrived twice"),
            (|seen| seen.end[1].nic.tx_completed = 9, "1 packets are not accounted for within"),
            (|seen| seen.faults.peers[0].sent = 9, "1 packets arrived that were never sent"),
            (|seen| seen.faults.peers[0].arrived = 11, "1 packets arrived that were never sent"),
            (|seen| seen.end[0].pool.0.alloc_slow = 3, "3 calls to the arena"),
            (
                |seen| seen.end[0].nic.tx_bad_descriptor = 1,
                "1 descriptors or lengths of the sockets were invalid",
            ),
            (|seen| seen.faults.flow.returned = Duration::from_millis(1001), "first packet after 1001 ms"),
            (|seen| seen.faults.flow.recovery = Duration::from_millis(3001), "half the rate after 3001 ms"),
            (|seen| seen.faults.flow.silence = Duration::from_millis(3001), "no packet for 3001 ms"),
            (|seen| seen.faults.holdings[1].own_kib = 257, "grew by 257 KiB"),
            (|seen| seen.faults.holdings[1].descriptors = 1, "1 more file descriptors"),
        ];
        for (change, what) in cases {
            let said = said(change);
            assert!(said.starts_with("FAIL: ") && said.contains(what), "{what}: {said}");
        }
    }
}
