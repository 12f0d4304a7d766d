//! The verdict of a command on interfaces.

use pagepool_link::{Ethtool, shell_word};
use pagepool_net::{Tally, ticks_per_second};
use pagepool_watch::commands::{LateThread, MoreQueues};
use serde_json::{Map, Value};

use super::attached::Record;
use super::link_watch::WatchedLink;
use super::running::Watched;
use crate::report::{LossLimit, LossShare, Verdict, grouped, in_line, object};
use crate::traffic::capture::CaptureResult;
use crate::traffic::figures::losses::LOSSES;
use crate::traffic::figures::{QueueName, losses};
use crate::traffic::sockets::{OpenedInterface, common_mode};
use crate::traffic::{PortSample, RunEnd, Sample, figures, sum};

/// If an interface among several loses all of this many packets, that is not by chance.
const NOT_BY_CHANCE: u64 = 100;

pub struct TrafficResult {
    pub command: &'static str,
    pub limit: LossLimit,
    pub record: Record,
    pub watched: Watched,
    /// Warnings of offloads that changed received packets.
    pub warned: Vec<String>,
    /// The counts at the end of the warm-up.
    pub warm: Sample,
    pub now: Sample,
    /// Numbered frames, if they were checked.
    pub tally: Option<Tally>,
    pub capture: Option<CaptureResult>,
}

impl TrafficResult {
    /// Judges the run, with the pools, which have ended, too.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::new(figures::PROOF);
        if let RunEnd::Gone(queue) = &self.watched.end {
            let after = format!("after {:.1} s", self.watched.seconds);
            let queue = self.current_name(queue);
            verdict.gone =
                Some(format!("{queue} was removed, or moved to another network namespace, {after}"));
        }
        self.conditions(&mut verdict);
        self.warned.iter().for_each(|warning| verdict.paragraph(&format!("warning: {warning}")));
        self.watched.links.judge(&mut verdict, &self.watched.end, &self.now.ports);
        self.packets(&mut verdict);
        self.lost(&mut verdict);
        if let Some(tally) = &self.tally {
            numbered(&mut verdict, tally);
        }
        if let Some(capture) = &self.capture {
            captured(&mut verdict, capture);
        }
        self.memory(&mut verdict);
        verdict
    }

    fn sum(&self, of: fn(&PortSample) -> u64) -> u64 {
        sum(&self.now.ports, of)
    }

    /// A queue, with the last name of its interface.
    fn current_name(&self, queue: &str) -> String {
        let Some(name) = self.record.names.iter().find(|name| name.port() == queue) else {
            return queue.into();
        };
        let interface = self.watched.links.current_name(&name.interface).into();
        QueueName { interface, queue: name.queue }.port()
    }

    fn conditions(&self, verdict: &mut Verdict) {
        verdict.field("command", self.command);
        verdict.field("mode", common_mode(&self.record.interfaces));
        verdict.field("interfaces", &self.record.interfaces);
        verdict.field("warnings", self.warned.iter().map(|text| in_line(text)).collect::<Vec<_>>());
        verdict.field("seconds", self.watched.seconds);
        let (ended_by, gone) = match &self.watched.end {
            RunEnd::Gone(queue) => ("gone", Some(queue)),
            RunEnd::Interrupted => ("interrupted", None),
            RunEnd::Time => ("time", None),
            RunEnd::Sent => ("sent", None),
            RunEnd::Output => ("output", None),
            RunEnd::Broken => ("broken", None),
            RunEnd::Detached(_) => ("detached", None),
        };
        verdict.field("ended_by", ended_by);
        verdict.some_field("gone", gone);
    }

    fn packets(&self, verdict: &mut Verdict) {
        let (received, sent) = (self.sum(|at| at.nic.rx_packets), self.sum(PortSample::sent));
        let [in_bytes, out_bytes] = [self.sum(|at| at.nic.rx_bytes), self.sum(PortSample::sent_bytes)];
        let dropped = self.sum(|at| at.port.drop);
        let a_second = |count: u64| count as f64 / self.watched.seconds;
        let counts = [("received", received), ("sent", sent), ("dropped", dropped)];
        let bytes = [("received_bytes", in_bytes), ("sent_bytes", out_bytes)];
        counts.into_iter().chain(bytes).for_each(|(key, count)| verdict.field(key, count));
        let rates = [("pps_in", a_second(received)), ("pps_out", a_second(sent))];
        let bits = [("mbit_s_in", a_second(in_bytes) * 8e-6), ("mbit_s_out", a_second(out_bytes) * 8e-6)];
        rates.into_iter().chain(bits).for_each(|(key, rate)| verdict.field(key, rate));
        self.judge_packets(verdict, received, sent);
        let rate = |packets: u64, bytes: u64| {
            let (pps, mbit_s) = (grouped(a_second(packets) as u64), a_second(bytes) * 8e-6);
            format!("{pps} packets/s, {mbit_s:.1} Mbit/s, over {:.1} s", self.watched.seconds)
        };
        if self.command != "gen" {
            verdict.row("packets received", received, &rate(received, in_bytes));
        }
        let note = if received == 0 { "(none received)" } else { "as requested" };
        match self.command {
            "drop" => verdict.row("packets dropped", dropped, note),
            _ => verdict.row("packets sent", sent, &rate(sent, out_bytes)),
        }
        self.cycles(verdict);
    }

    fn judge_packets(&self, verdict: &mut Verdict, received: u64, sent: u64) {
        match (received + sent, losses::total(&self.now.ports)) {
            _ if matches!(self.watched.end, RunEnd::Gone(_)) => {} // the interface is gone, which is reported
            (0, 0) => verdict.idle = true,
            (0, lost) => verdict.fail_if(true, || format!("all {} packets were lost", grouped(lost))),
            // It was to send everything that it received.
            _ => verdict.fail_if(self.command != "drop" && sent == 0, || "no packet was sent".into()),
        }
    }

    /// Ticks of the time-stamp counter per packet, by part and in total.
    fn cycles(&self, verdict: &mut Verdict) {
        let spent = self.now.cycles.since(&self.warm.cycles);
        let burst = (spent.rx_bursts > 0).then(|| spent.rx_packets as f64 / spent.rx_bursts as f64);
        let packets = spent.rx_packets.max(spent.tx_packets);
        let parts = [
            ("make", self.now.make_ticks, self.sum(|at| at.nic.tx_packets)),
            ("receive", spent.receive_ticks, packets),
            ("handler", spent.handler_ticks, packets),
            ("transmit", spent.transmit_ticks, packets),
            ("return", spent.return_ticks, packets),
            ("calls", spent.call_ticks, packets),
        ];
        let each = |ticks: u64, packets: u64| if packets == 0 { 0.0 } else { ticks as f64 / packets as f64 };
        let parts = parts.map(|(key, ticks, packets)| (key, each(ticks, packets)));
        let total: f64 = parts.iter().map(|(_, cycles)| cycles).sum();
        let cycles = parts.map(|(key, cycles)| (key, Value::from(cycles)));
        let others = [("total", total.into()), ("ticks_per_second", ticks_per_second().into())];
        verdict.field("burst", burst);
        verdict.field("cycles", object(cycles.into_iter().chain(others)));
        let some = parts.iter().filter(|(_, cycles)| *cycles >= 0.05);
        let named = |part| if part == "calls" { "system calls" } else { part };
        let some: Vec<_> = some.map(|(part, cycles)| format!("{} {cycles:.1}", named(*part))).collect();
        let burst = burst.map_or(String::new(), |burst| format!("; {burst:.1} packets per burst"));
        verdict.row("cycles per packet", total.round() as u64, &format!("{}{burst}", some.join(", ")));
    }

    /// The share of its time that a thread with packets spent in system calls.
    fn in_kernel(&self) -> f64 {
        let spent = self.now.cycles.since(&self.warm.cycles);
        let others = spent.receive_ticks + spent.handler_ticks + spent.transmit_ticks + spent.return_ticks;
        let all = others + spent.call_ticks;
        if all == 0 { 0.0 } else { spent.call_ticks as f64 / all as f64 }
    }

    /// The driver of the first interface, and whether all interfaces have more queues.
    fn device(&self) -> (Option<String>, MoreQueues<'_>) {
        let Ok(ethtool) = Ethtool::open() else { return (None, MoreQueues::Unknown) };
        let first = self.record.interfaces.first().map(|of| self.watched.links.current_name(&of.name));
        let driver = first.and_then(|name| ethtool.driver(name).ok().flatten());
        let all = self.record.interfaces.iter().map(|of| self.more_queues(of, &ethtool));
        (driver, all.reduce(MoreQueues::and).unwrap_or(MoreQueues::Unknown))
    }

    fn more_queues<'a>(&'a self, of: &'a OpenedInterface, ethtool: &Ethtool) -> MoreQueues<'a> {
        if of.has_back_end() {
            return MoreQueues::Unknown;
        }
        let name = self.watched.links.current_name(&of.name);
        let channels = ethtool.channels(name).ok().flatten();
        let both = channels.map(|of| (of.rx.min(of.tx), of.max_rx.min(of.max_tx)));
        MoreQueues::of(name, of.queues.len(), both.unwrap_or((of.queues_of, of.queues_of)))
    }

    /// Packets that interfaces took and do not count as sent. Checked only in copy mode, where a driver gets
    /// packets like any others from the kernel; some drivers count none with zero copy.
    fn uncounted(&self, verdict: &mut Verdict) -> u64 {
        let copied = |of: &&OpenedInterface| of.tx_mode.is_some() && of.zero_copy == Some(false);
        let counts = |of: &&OpenedInterface| !self.is_link(&of.name, |link| link.was_down); // some restart then
        let (mut all, sent) = (0, self.sum(PortSample::sent));
        for OpenedInterface { name, .. } in self.record.interfaces.iter().filter(copied).filter(counts) {
            let ports = self.record.names.iter().zip(&self.now.ports).filter(|(of, _)| of.interface == *name);
            let taken = ports.map(|(_, at)| at.sent()).sum();
            let uncounted = self.record.counts.uncounted(name, taken);
            if uncounted > 0 {
                let now = self.watched.links.current_name(name);
                let word = shell_word(now);
                let why =
                    format!("{now} took them, and does not count them as sent: `ip -s link show {word}`");
                verdict.row("lost", uncounted, &why);
                let none = uncounted == taken && (taken >= NOT_BY_CHANCE || taken == sent);
                verdict.fail_if(none, || format!("{now} counts none of {} packets as sent", grouped(taken)));
            }
            all += uncounted;
        }
        all
    }

    /// The share of all packets received or made. The run is not to blame for what an interface loses when it
    /// is removed: then the limit applies to the losses before that.
    fn loss(&self, unsent: u64, uncounted: u64) -> LossShare {
        let share = |ports: &[PortSample], unsent, uncounted| {
            let packets = match self.command {
                "gen" => sum(ports, |at| at.port.tx + at.port.redirect_in),
                _ => sum(ports, |at| at.nic.rx_packets) + losses::unreceived(ports),
            };
            let places = losses::places(ports).chain([("transmit", uncounted), ("not sent", unsent)]);
            LossShare::new(packets, places, self.limit)
        };
        let all = share(&self.now.ports, unsent, uncounted);
        match self.watched.end {
            RunEnd::Gone(_) => all.judged_by(&share(&self.watched.links.before_removal, 0, 0)),
            _ => all,
        }
    }

    fn lost(&self, verdict: &mut Verdict) {
        let (ports, unsent) = (&self.now.ports, self.sum(unsent_of));
        verdict.field("lost", object(losses::counts(ports)));
        verdict.field("lost_total", losses::total(ports));
        verdict.field("unsent", unsent);
        let uncounted = self.uncounted(verdict);
        verdict.field("uncounted", uncounted);
        verdict.loss(&self.loss(unsent, uncounted));
        let (driver, queues) = self.device();
        let late = LateThread { in_kernel: self.in_kernel(), driver: driver.as_deref(), queues };
        let lost = LOSSES.iter().map(|loss| (loss.count(ports), loss)).filter(|(count, _)| *count > 0);
        lost.for_each(|(count, loss)| {
            verdict.row("lost", count, &loss.reason_and_remedy(&self.warm.ports, ports, &late));
        });
        let refused = self.sum(|at| at.nic.calls_refused);
        verdict.field("calls_refused", refused);
        if refused > 0 {
            verdict.row("calls to send refused", refused, self.why_refused());
        }
        if unsent > 0 {
            verdict.row("not sent", unsent, self.why_unsent(refused));
        }
        self.back_ends(verdict);
    }

    /// How often vhost back ends were lost.
    fn back_ends(&self, verdict: &mut Verdict) {
        let lost = self.sum(|at| at.nic.link_lost);
        if lost > 0 {
            let note = "it exited or closed the connection; the buffers returned";
            verdict.count("link_lost", lost, "back end lost (times a queue)", note);
        }
    }

    fn why_refused(&self) -> &'static str {
        match self.counts_only_where(|at| at.nic.calls_refused, |link| link.was_down) {
            true => "by the driver (interface down)",
            false => "by the driver: the interface was down, or its XDP program was detached",
        }
    }

    fn why_unsent(&self, refused: u64) -> &'static str {
        let failed = |at: &PortSample| unsent_of(at) == 0 || at.nic.link_lost + at.nic.kept > 0;
        match (self.counts_only_where(unsent_of, |link| link.is_down), refused) {
            (true, _) => "(interface down)",
            _ if self.now.ports.iter().all(failed) => "the back end exited, hung, or was too slow",
            (false, 0) => "the interface was too slow, or was removed",
            (false, _) => "the driver refused to send, the interface was too slow, or was removed",
        }
    }

    /// Whether all ports with a count belong to interfaces that fulfil `is_so`.
    fn counts_only_where(&self, count: fn(&PortSample) -> u64, is_so: fn(&WatchedLink) -> bool) -> bool {
        let mut counting = self.record.names.iter().zip(&self.now.ports).filter(|(_, at)| count(at) > 0);
        counting.all(|(name, _)| self.is_link(&name.interface, is_so))
    }

    /// Whether an interface fulfils `is_so`. `name`: its name when it was opened.
    fn is_link(&self, name: &str, is_so: fn(&WatchedLink) -> bool) -> bool {
        self.watched.links.link(name).is_some_and(is_so)
    }

    fn memory(&self, verdict: &mut Verdict) {
        let ports = &self.now.ports;
        figures::judge_pools(verdict, &self.warm.ports, ports, &self.record.pools);
        verdict.field("kernel", object(figures::kernel(ports).entries()));
        verdict.field("buffer_locations", object(figures::buffer_locations(ports)));
        // Equal to the number of buffers that are out, unless buffers are parts of pages.
        verdict.field("pages_out", self.sum(|at| at.pool.1.out));
        let named = self.record.names.iter().zip(ports);
        let ports: Vec<Map<_, _>> =
            named.map(|(name, port)| port.fields().into_iter().chain(name.fields()).collect()).collect();
        verdict.field("ports", ports);
    }
}

fn numbered(verdict: &mut Verdict, tally: &Tally) {
    let Tally { good, again, beyond, corrupt, unnumbered, overtaken, .. } = *tally;
    let missing = tally.missing(tally.reached());
    verdict.field(
        "numbered",
        serde_json::json!({
            "good": good, "missing": missing, "corrupt": corrupt, "duplicates": again, "untracked": beyond,
            "overtaken": overtaken, "unnumbered": unnumbered,
        }),
    );
    verdict.row("numbered frames, intact", good, "");
    verdict.row("  missing below the highest", missing, "");
    verdict.row("  damaged", corrupt, "must be 0");
    verdict.row("  duplicates", again, "");
    if beyond > 0 {
        verdict.row("  not tracked", beyond, "their numbers are not below the N of --verify");
    }
    verdict.row("packets without a number", unnumbered, "");
    verdict.fail_count(corrupt, "numbered frames were damaged");
}

fn captured(verdict: &mut Verdict, capture: &CaptureResult) {
    let CaptureResult { written, left_out, failed } = capture;
    verdict.field("not_captured", left_out);
    verdict.some_field("capture_error", failed.as_ref());
    verdict.count("captured", *written, "packets in the capture file", "");
    if *left_out > 0 {
        let why = if failed.is_none() { "writing the file was too slow" } else { "writing the file failed" };
        verdict.row("  left out", *left_out, why);
    }
    verdict.fail_if(failed.is_some(), || failed.clone().unwrap_or_default());
}

/// Frames that a port had not sent at the end.
fn unsent_of(at: &PortSample) -> u64 {
    to_send(at).saturating_sub(at.nic.tx_completed)
}

/// Frames that were to leave a port, without those that were refused.
fn to_send(at: &PortSample) -> u64 {
    let refused = at.port.tx_overflow
        + at.port.tx_gone
        + at.nic.tx_too_long
        + at.nic.tx_unmapped
        + at.paths.copy_failed;
    (at.port.tx + at.port.redirect_in).saturating_sub(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::run::link_watch::LinkChanges;

    fn run_of(ports: &[PortSample]) -> TrafficResult {
        let sample = |ports| Sample { ports, ..Sample::default() };
        TrafficResult {
            command: "drop",
            limit: LossLimit::default(),
            record: Record::default(),
            watched: Watched { end: RunEnd::Time, links: LinkChanges::default(), seconds: 1.0 },
            warned: Vec::new(),
            warm: sample(vec![PortSample::default(); ports.len()]),
            now: sample(ports.to_vec()),
            tally: None,
            capture: None,
        }
    }

    #[test]
    fn a_run_that_lost_all_packets_failed() {
        let verdict = |at: PortSample| run_of(&[at]).verdict().to_string();
        let mut at = PortSample::default();
        assert!(verdict(at).ends_with("No packets moved. Buffers: all returned."));
        at.nic.rx_too_long = 7;
        let lost = "every buffer was returned; 100.0 % of 7 packets were lost (rejected on arrival 100.0 %)";
        assert!(
            verdict(at).ends_with(&format!("\nFAIL: all 7 packets were lost; {lost}")),
            "{}",
            verdict(at)
        );
        at.nic.rx_packets = 13;
        let lost = "35.0 % of 20 packets were lost (rejected on arrival 35.0 %)";
        assert!(verdict(at).ends_with(&format!("\nPASS: {}; {lost}", figures::PROOF)), "{}", verdict(at));
    }

    #[test]
    fn unsent_packets_are_counted_per_interface() {
        let mut ports = [PortSample::default(); 2];
        ports[1].port.tx = 5;
        let mut run = run_of(&ports);
        let mut link = pagepool_link::Netlink::open().unwrap().link("lo").unwrap();
        for name in ["near0", "near1"] {
            run.record.names.push(QueueName { interface: name.into(), queue: 0 });
            link.name = name.into();
            run.watched.links.links.push(WatchedLink::new(name, &link));
        }
        run.watched.links.links[0].is_down = true;
        assert!(!run.counts_only_where(unsent_of, |link| link.is_down));
        run.watched.links.links[1].is_down = true;
        run.watched.links.links[0].is_down = false;
        assert!(run.counts_only_where(unsent_of, |link| link.is_down));
    }

    #[test]
    fn refused_packets_are_not_unsent() {
        let mut at = PortSample::default();
        (at.port.tx, at.port.redirect_in, at.port.tx_overflow, at.nic.tx_too_long) = (10, 20, 3, 4);
        assert_eq!(to_send(&at), 23);
    }
}
