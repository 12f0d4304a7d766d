//! What became of a soak, for people and for programs.

use std::fmt;
use std::time::Duration;

use pagepool::PoolRef;
use pagepool_net::KernelStats;
use serde::Serialize;
use serde_json::{Map, Value};

use super::fault_injector::Found;
use crate::demo::course::Sample;
use crate::engine::figures;
use crate::report::number::grouped;

/// The longest time to the first packet after something was in their way.
const RETURN: Duration = Duration::from_secs(1);
/// The longest time to half the rate then, and without any packet otherwise: on two busy cores a peer or the loop may not
/// run for long.
const BUSY: Duration = Duration::from_secs(3);
/// How much the process may grow after its warm-up, in KiB: 64 pages, for stacks and heaps that are not all touched at once.
/// A page for each flap and each kill of ten minutes is more.
const GROWTH_KIB: u64 = 256;

/// What was seen from the warm-up to the end.
pub struct Seen {
    pub mode: String,
    pub found: Found,
    pub warm: Sample,
    pub end: Sample,
}

/// Everything in the JSON output.
#[derive(Debug, Serialize)]
pub struct Verdict {
    mode: String,
    seconds: f64,
    /// The second of them is a peer's own interface, which it sees.
    flaps: u64,
    kills: u64,
    /// Frames that arrived whole, and where they were lost that did not.
    packets: u64,
    pps: f64,
    sent: u64,
    lost_before: u64,
    dropped: u64,
    lost_behind: u64,
    /// Bursts that a peer did not send because its interface was down.
    bursts_down: u64,
    /// Frames in bursts in which a peer was killed: sent or not.
    in_doubt: u64,
    /// Places where numbers were missing, and how many.
    gaps: u64,
    in_gaps: u64,
    overtaken: u64,
    /// What must be 0.
    damaged: u64,
    repeated: u64,
    lost_within: u64,
    from_nowhere: u64,
    slow_after_warmup: u64,
    missing: u64,
    nic_errors: u64,
    longest_return_ms: u64,
    longest_silence_ms: u64,
    longest_recovery_ms: u64,
    rss_kib_start: u64,
    rss_kib_end: u64,
    /// Not counting what is mapped of files.
    grown_kib: u64,
    descriptors_grown: u64,
    ok: bool,
    /// The kernel's count of each socket.
    xdp: Vec<Map<String, Value>>,
}

/// What became of the frames of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Not seen by the socket: a link was down, or a queue of the kernel full.
    before: u64,
    /// A ring or queue of ours was full.
    dropped: u64,
    /// Neither sent nor known to be dropped.
    within: u64,
    /// Sent, and not seen by the peer: a link was down, a queue of the kernel full, or there was no peer.
    behind: u64,
    /// More came out of a part of the way than went in.
    from_nowhere: u64,
}

impl Way {
    /// From peer `from` to the other, through our sockets.
    fn of(seen: &Seen, from: usize) -> Self {
        let (to, end) = (1 - from, &seen.end);
        let sent = seen.found.peers[from].sent;
        let came = end[from].nic.rx_packets + end[from].nic.rx_no_buffer;
        let dropped = end[from].nic.rx_no_buffer + end[to].port.tx_overflow;
        let went = end[to].nic.tx_completed;
        let arrived = seen.found.peers[to].arrived;
        let more = |out: u64, into: u64| out.saturating_sub(into);
        Self {
            before: more(sent, came),
            dropped,
            within: came.abs_diff(dropped + went),
            behind: more(went, arrived),
            from_nowhere: more(came, sent + seen.found.in_doubt[from]) + more(arrived, went),
        }
    }
}

impl Verdict {
    /// Looks at the pools, which have ended, too.
    pub fn of(seen: &Seen, pools: &[PoolRef]) -> Self {
        let Seen { mode, found, warm, end } = seen;
        let ways = [Way::of(seen, 0), Way::of(seen, 1)];
        let all = |of: fn(&Way) -> u64| ways.iter().map(of).sum::<u64>();
        let [first, last] = &found.holdings;
        let peers = found.peers[0].plus(&found.peers[1]);
        let mut verdict = Self {
            mode: mode.clone(),
            seconds: found.seconds,
            flaps: found.flaps,
            kills: found.kills,
            packets: peers.arrived,
            pps: peers.arrived as f64 / found.seconds.max(1e-9),
            sent: peers.sent,
            lost_before: all(|way| way.before),
            dropped: all(|way| way.dropped),
            lost_behind: all(|way| way.behind),
            bursts_down: peers.down,
            in_doubt: found.in_doubt.iter().sum(),
            gaps: peers.gaps,
            in_gaps: peers.in_gaps,
            overtaken: peers.overtaken,
            damaged: peers.damaged,
            repeated: peers.again,
            lost_within: all(|way| way.within),
            from_nowhere: all(|way| way.from_nowhere),
            slow_after_warmup: figures::slow(warm, end),
            missing: pools.iter().map(|pool| pool.inflight().total.unsigned_abs()).sum(),
            nic_errors: figures::nic_errors(end),
            longest_return_ms: found.returned.as_millis() as u64,
            longest_silence_ms: found.silence.as_millis() as u64,
            longest_recovery_ms: found.recovery.as_millis() as u64,
            rss_kib_start: first.rss_kib,
            rss_kib_end: last.rss_kib,
            grown_kib: last.own_kib.saturating_sub(first.own_kib),
            descriptors_grown: last.descriptors.saturating_sub(first.descriptors),
            ok: false,
            xdp: end.iter().filter_map(|port| port.xsk.as_ref()).map(named).collect(),
        };
        verdict.ok = verdict.complaints().is_empty();
        verdict
    }

    /// Whether all is well.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    fn complaints(&self) -> Vec<String> {
        let [soon, late] = [RETURN, BUSY].map(|limit| limit.as_millis() as u64);
        let took = |ms: u64, limit: u64, what: &str| {
            (ms > limit, format!("packets {what} for {ms} ms, at most {limit} is good"))
        };
        let counted = |count: u64, what: &str| (count > 0, format!("{} {what}", grouped(count)));
        let all = [
            (self.packets == 0, "no packet arrived".to_owned()),
            (self.flaps > 1 && self.bursts_down == 0, "no peer's interface was ever down".to_owned()),
            counted(self.damaged, "packets were damaged"),
            counted(self.repeated, "packets arrived twice, or much too late"),
            counted(self.lost_within, "packets are not accounted for within the forwarder"),
            counted(self.from_nowhere, "packets came that nobody sent"),
            counted(self.slow_after_warmup, "calls to the arena after the warm-up"),
            counted(self.missing, "buffers never came home"),
            counted(self.nic_errors, "things were done by the sockets that they must not"),
            took(self.longest_return_ms, soon, "did not come back"),
            took(self.longest_recovery_ms, late, "did not come as fast again"),
            took(self.longest_silence_ms, late, "stayed away"),
            (
                self.grown_kib > GROWTH_KIB,
                format!("the process grew by {} KiB, at most {GROWTH_KIB} is good", grouped(self.grown_kib)),
            ),
            counted(self.descriptors_grown, "descriptors more are open than after the warm-up"),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect()
    }
}

fn named(stats: &KernelStats) -> Map<String, Value> {
    stats.entries().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, value: u64, more: &str| {
            writeln!(f, "{}", format!("{name:<36} {:>15}  {more}", grouped(value)).trim_end())
        };
        writeln!(f, "\nover {}, {:.1} s", self.mode, self.seconds)?;
        line(f, "interfaces down and up, a second each", self.flaps, "")?;
        line(f, "peer processes killed", self.kills, "")?;
        line(
            f,
            "packets",
            self.packets,
            &format!("{} a second, every byte checked", grouped(self.pps as u64)),
        )?;
        line(f, "lost before us", self.lost_before, "a link was down")?;
        line(f, "dropped by us", self.dropped, "a ring or queue was full")?;
        line(f, "lost behind us", self.lost_behind, "a link was down, a queue full, or no peer there")?;
        line(f, "gaps in the numbers", self.gaps, &format!("{} numbers in all", grouped(self.in_gaps)))?;
        line(
            f,
            "longest time to the first one, ms",
            self.longest_return_ms,
            "at most 1,000, once the way is free",
        )?;
        line(f, "longest time to half the rate, ms", self.longest_recovery_ms, "at most 3,000, likewise")?;
        line(f, "longest silence, ms", self.longest_silence_ms, "at most 3,000, with the way free")?;
        line(f, "packets damaged, or twice", self.damaged + self.repeated, "must be 0")?;
        line(f, "packets lost within", self.lost_within + self.from_nowhere, "must be 0")?;
        line(f, "slow allocations after warm-up", self.slow_after_warmup, "must be 0: calls to the arena")?;
        line(f, "buffers missing at the end", self.missing, "must be 0")?;
        let size = format!("{} to {} KiB with code", grouped(self.rss_kib_start), grouped(self.rss_kib_end));
        line(f, "memory grown by, KiB", self.grown_kib, &format!("at most {GROWTH_KIB}; {size}"))?;
        line(f, "descriptors more", self.descriptors_grown, "must be 0")?;
        for (at, xdp) in self.xdp.iter().enumerate() {
            let moved = xdp.iter().filter(|(_, value)| value.as_u64() != Some(0));
            let fields: Vec<_> = moved.map(|(name, value)| format!("{name} {value}")).collect();
            writeln!(f, "socket {at}: {}", fields.join(", "))?;
        }
        match self.complaints().as_slice() {
            [] => write!(f, "\nAll is well."),
            complaints => write!(f, "\nNOT well: {}.", complaints.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten frames each way that went well.
    fn well() -> Seen {
        let mut seen = Seen {
            mode: "af_xdp".into(),
            found: Found { seconds: 1.0, ..Found::default() },
            warm: Sample::default(),
            end: Sample::default(),
        };
        for at in 0..2 {
            (seen.found.peers[at].sent, seen.found.peers[at].arrived) = (10, 10);
            (seen.end[at].nic.rx_packets, seen.end[at].nic.tx_completed) = (10, 10);
        }
        seen
    }

    fn said(change: impl FnOnce(&mut Seen)) -> String {
        let mut seen = well();
        change(&mut seen);
        let verdict = Verdict::of(&seen, &[]);
        let text = verdict.to_string();
        assert_eq!(verdict.is_ok(), text.contains("All is well"), "{text}");
        text.lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn what_is_lost_where_it_may_be_is_well() {
        assert_eq!(said(|_| {}), "All is well.");
        assert_eq!(said(|seen| seen.found.peers[0].sent = 15), "All is well.");
        assert_eq!(said(|seen| seen.found.peers[0].arrived = 5), "All is well.");
        let full = |seen: &mut Seen| {
            (seen.end[1].nic.tx_completed, seen.end[1].port.tx_overflow) = (7, 3);
            seen.found.peers[1].arrived = 7;
        };
        assert_eq!(said(full), "All is well.");
        let doubt = |seen: &mut Seen| {
            (seen.found.peers[1].sent, seen.found.in_doubt[1]) = (8, 2);
        };
        assert_eq!(said(doubt), "All is well.", "a peer was killed in its burst");
    }

    /// What goes wrong, and what is said of it.
    type Case = (fn(&mut Seen), &'static str);

    #[test]
    fn whatever_went_wrong_is_said() {
        let cases: [Case; 14] = [
            (|seen| seen.found.peers = Default::default(), "no packet arrived"),
            (|seen| seen.found.flaps = 2, "no peer's interface was ever down"),
            (|seen| seen.found.peers[0].damaged = 2, "2 packets were damaged"),
            (|seen| seen.found.peers[0].again = 2, "2 packets arrived twice"),
            (|seen| seen.end[1].nic.tx_completed = 9, "1 packets are not accounted for within"),
            (|seen| seen.found.peers[0].sent = 9, "1 packets came that nobody sent"),
            (|seen| seen.found.peers[0].arrived = 11, "1 packets came that nobody sent"),
            (|seen| seen.end[0].pool.0.alloc_slow = 3, "3 calls to the arena"),
            (|seen| seen.end[0].nic.tx_bad_descriptor = 1, "1 things were done by the sockets"),
            (|seen| seen.found.returned = Duration::from_millis(1001), "did not come back for 1001 ms"),
            (
                |seen| seen.found.recovery = Duration::from_millis(3001),
                "did not come as fast again for 3001 ms",
            ),
            (|seen| seen.found.silence = Duration::from_millis(3001), "stayed away for 3001 ms"),
            (|seen| seen.found.holdings[1].own_kib = 257, "grew by 257 KiB"),
            (|seen| seen.found.holdings[1].descriptors = 1, "1 descriptors more"),
        ];
        for (change, what) in cases {
            let said = said(change);
            assert!(said.starts_with("NOT well: ") && said.contains(what), "{what}: {said}");
        }
    }
}
