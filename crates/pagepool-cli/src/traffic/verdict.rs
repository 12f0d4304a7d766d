//! What became of a run, for people and for programs.

use std::fmt;

use pagepool::PoolRef;
use pagepool_lab::Tally;
use pagepool_net::ticks_per_second;
use serde::Serialize;
use serde_json::{Map, Value};

use super::capture::Captured;
use super::losses::{self, LOSSES};
use super::run_state::{End, Sample};
use super::setup::Opened;
use crate::engine::buffer_locations::Places;
use crate::engine::figures;
use crate::engine::kernel_counts::KernelCounts;
use crate::engine::port_sample::PortSample;
use crate::report::number::grouped;

/// What was counted.
pub struct Counted {
    pub command: &'static str,
    pub interfaces: Vec<Opened>,
    pub seconds: f64,
    pub end: End,
    /// When the warm-up was over, and at the end.
    pub warm: Sample,
    pub now: Sample,
    /// Numbered frames, if they were looked at.
    pub tally: Option<Tally>,
    pub captured: Option<Captured>,
}

/// Everything in the JSON output.
#[derive(Debug, Serialize)]
pub struct Verdict {
    command: &'static str,
    /// Of all interfaces, if they have one in common, else `mixed`.
    mode: String,
    interfaces: Vec<Opened>,
    seconds: f64,
    /// `interrupted`, `time`, `sent` or `gone`.
    ended_by: &'static str,
    /// The queue that went away.
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<String>,
    /// Packets that were received, and that were sent and completed.
    received: u64,
    sent: u64,
    /// Packets that ended as they should: dropped by `drop`.
    dropped: u64,
    received_bytes: u64,
    sent_bytes: u64,
    pps_in: f64,
    pps_out: f64,
    mbit_s_in: f64,
    mbit_s_out: f64,
    lost: Map<String, Value>,
    lost_total: u64,
    /// On their way out when it ended: an interface was down, or had gone.
    unsent: u64,
    /// Packets of a burst, where any came.
    burst: Option<f64>,
    cycles: Cycles,
    #[serde(skip_serializing_if = "Option::is_none")]
    numbered: Option<Numbered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    captured: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_captured: Option<u64>,
    /// Why the capture file is not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    capture_error: Option<String>,
    slow_after_warmup: u64,
    missing: u64,
    recycled_percent: Option<f64>,
    /// What the kernel counted for all sockets.
    kernel: KernelCounts,
    /// Buffers that were not in their pools just before the end.
    places: Places,
    /// Pages of which a buffer was out then: as many as there are places, unless chunks are parts of pages.
    pages_out: u64,
    ok: bool,
    pools: Vec<Map<String, Value>>,
    ports: Vec<Map<String, Value>>,
}

/// Ticks of the time-stamp counter a packet, by part, and all of them together. No part that nothing was counted for.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Cycles {
    /// Making frames: `gen`.
    make: f64,
    /// Taking packets off the ring, and giving the kernel new buffers from the pool.
    receive: f64,
    /// Deciding, and what becomes of each packet.
    program: f64,
    /// Putting frames on the ring, and taking back those that were sent.
    transmit: f64,
    /// Sending buffers home to their pool.
    r#return: f64,
    /// System calls, in which the kernel may do the driver's work.
    calls: f64,
    total: f64,
    ticks_per_second: u64,
}

impl Cycles {
    fn of(warm: &Sample, now: &Sample) -> Self {
        let spent = now.cycles.since(&warm.cycles);
        let packets = spent.rx_packets.max(spent.tx_packets);
        let each = |ticks: u64| if packets == 0 { 0.0 } else { ticks as f64 / packets as f64 };
        let [make, receive, program, transmit] =
            [now.make_ticks, spent.receive_ticks, spent.program_ticks, spent.transmit_ticks].map(each);
        let [r#return, calls] = [spent.return_ticks, spent.call_ticks].map(each);
        let total = make + receive + program + transmit + r#return + calls;
        Self {
            make,
            receive,
            program,
            transmit,
            r#return,
            calls,
            total,
            ticks_per_second: ticks_per_second(),
        }
    }

    fn said(&self) -> String {
        let parts = [
            ("make", self.make),
            ("receive", self.receive),
            ("program", self.program),
            ("transmit", self.transmit),
            ("return", self.r#return),
            ("system calls", self.calls),
        ];
        let said = parts.iter().filter(|(_, cycles)| *cycles >= 0.05);
        said.map(|(part, cycles)| format!("{part} {cycles:.1}")).collect::<Vec<_>>().join(", ")
    }
}

/// Numbered frames.
#[derive(Clone, Copy, Debug, Serialize)]
struct Numbered {
    /// Numbers that came whole.
    good: u64,
    /// Numbers below the highest that came, which did not come.
    missing: u64,
    /// Frames that were changed on their way.
    corrupt: u64,
    /// Frames whose number had come before.
    again: u64,
    /// Frames of numbers that were not kept track of.
    beyond: u64,
    /// Frames that one with a higher number had overtaken.
    overtaken: u64,
    /// Frames of others.
    foreign: u64,
}

impl Numbered {
    fn of(tally: &Tally) -> Self {
        let Tally { good, again, beyond, corrupt, foreign, overtaken, .. } = *tally;
        Self { good, missing: tally.missing(tally.reached()), corrupt, again, beyond, overtaken, foreign }
    }
}

impl Verdict {
    /// Looks at the pools, which have ended, too.
    pub fn of(counted: Counted, pools: &[PoolRef]) -> Self {
        let Counted { command, interfaces, seconds, end, warm, now, tally, captured, .. } = counted;
        let ports = &now.ports;
        let sum = |of: fn(&PortSample) -> u64| ports.iter().map(of).sum::<u64>();
        let (received, sent) = (sum(|at| at.nic.rx_packets), sum(|at| at.nic.tx_completed));
        let (received_bytes, sent_bytes) = (sum(|at| at.nic.rx_bytes), sum(|at| at.nic.tx_bytes));
        let dropped = sum(|at| at.port.drop);
        let spent = now.cycles.since(&warm.cycles);
        let slow_after_warmup = figures::slow(&warm.ports, ports);
        let missing = pools.iter().map(|pool| pool.inflight().total.unsigned_abs()).sum();
        let numbered = tally.as_ref().map(Numbered::of);
        let corrupt = numbered.map_or(0, |numbered| numbered.corrupt);
        let (ended_by, gone) = ended(end);
        let capture_error = captured.as_ref().and_then(|captured| captured.failed.clone());
        Self {
            command,
            mode: mode(&interfaces),
            interfaces,
            seconds,
            ended_by,
            gone,
            received,
            sent,
            dropped,
            received_bytes,
            sent_bytes,
            pps_in: received as f64 / seconds,
            pps_out: sent as f64 / seconds,
            mbit_s_in: received_bytes as f64 * 8e-6 / seconds,
            mbit_s_out: sent_bytes as f64 * 8e-6 / seconds,
            lost: LOSSES.iter().map(|loss| (loss.key.to_owned(), loss.count(ports).into())).collect(),
            lost_total: losses::total(ports),
            unsent: sum(to_send).saturating_sub(sent),
            burst: (spent.rx_bursts > 0).then(|| spent.rx_packets as f64 / spent.rx_bursts as f64),
            cycles: Cycles::of(&warm, &now),
            numbered,
            captured: captured.as_ref().map(|captured| captured.written),
            not_captured: captured.as_ref().map(|captured| captured.left_out),
            slow_after_warmup,
            missing,
            recycled_percent: figures::recycled_percent(&warm.ports, ports),
            kernel: KernelCounts::of(ports),
            places: Places::of(ports),
            pages_out: sum(|at| at.pool.1.out),
            ok: [slow_after_warmup, missing, corrupt] == [0; 3] && capture_error.is_none(),
            capture_error,
            pools: pools.iter().map(|pool| object(Some(pool.name()), pool.stats().fields())).collect(),
            ports: ports.iter().map(port).collect(),
        }
    }

    /// Whether all is well.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    fn complaints(&self) -> Vec<String> {
        let corrupt = self.numbered.map_or(0, |numbered| numbered.corrupt);
        let all = [
            (self.slow_after_warmup, "allocations had to ask the arena"),
            (self.missing, "buffers never came home"),
            (corrupt, "numbered frames were damaged on their way"),
        ];
        let counted = all.iter().filter(|(count, _)| *count > 0);
        let counted = counted.map(|(count, what)| format!("{} {what}", grouped(*count)));
        counted.chain(self.capture_error.clone()).collect()
    }
}

/// Frames that were to go out of a port, and of which nobody knows why they should not.
fn to_send(at: &PortSample) -> u64 {
    let refused = at.port.tx_overflow
        + at.port.tx_gone
        + at.nic.tx_too_long
        + at.nic.tx_unmapped
        + at.paths.copy_failed;
    (at.port.tx + at.port.redirect_in).saturating_sub(refused)
}

fn ended(end: End) -> (&'static str, Option<String>) {
    match end {
        End::Interrupted => ("interrupted", None),
        End::Time => ("time", None),
        End::Sent => ("sent", None),
        End::Broken => ("broken", None),
        End::Gone(queue) => ("gone", Some(queue)),
    }
}

fn mode(interfaces: &[Opened]) -> String {
    let first = interfaces.first().map_or("", |interface| &interface.mode);
    let same = interfaces.iter().all(|interface| interface.mode == first);
    if same { first.to_owned() } else { "mixed".into() }
}

fn port(at: &PortSample) -> Map<String, Value> {
    let mut fields = object(None, at.port.entries().chain(at.paths.entries()));
    fields.insert("nic".into(), Value::Object(object(None, at.nic.entries())));
    if let Some(xsk) = at.xsk {
        fields.insert("xsk".into(), Value::Object(object(None, xsk.entries())));
    }
    fields
}

fn object(name: Option<&str>, fields: impl IntoIterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    let name = name.map(|name| ("name".to_owned(), name.into())).into_iter();
    name.chain(fields.into_iter().map(|(name, value)| (name.to_owned(), value.into()))).collect()
}

/// A line: what, how much of it, and what else there is to say.
fn line(f: &mut fmt::Formatter<'_>, what: &str, count: u64, more: &str) -> fmt::Result {
    writeln!(f, "{}", format!("{what:<32} {:>13}  {more}", grouped(count)).trim_end())
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        if let Some(queue) = &self.gone {
            writeln!(f, "{queue} went away, so it ended after {:.1} s.\n", self.seconds)?;
        }
        self.packets(f)?;
        for loss in LOSSES.iter() {
            if let Some(count) = self.lost[loss.key].as_u64().filter(|&count| count > 0) {
                line(f, "lost", count, loss.what)?;
            }
        }
        if self.unsent > 0 {
            line(f, "not sent any more", self.unsent, "the interface was down, or had gone")?;
        }
        self.checks(f)?;
        line(f, "slow allocations after warm-up", self.slow_after_warmup, "must be 0: calls to the arena")?;
        line(f, "buffers missing at the end", self.missing, "must be 0")?;
        if self.ok {
            return write!(f, "\nAll is well: every buffer is home, and the arena was not asked again.");
        }
        write!(f, "\nNOT well: {}.", self.complaints().join("; "))
    }
}

impl Verdict {
    fn packets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |pps: f64, mbit_s: f64| {
            format!("{} a second, {mbit_s:.1} Mbit/s, over {:.1} s", grouped(pps as u64), self.seconds)
        };
        if self.command != "gen" {
            line(f, "packets received", self.received, &rate(self.pps_in, self.mbit_s_in))?;
        }
        if self.command == "drop" {
            line(f, "packets dropped", self.dropped, "as they should be")?;
        } else {
            line(f, "packets sent", self.sent, &rate(self.pps_out, self.mbit_s_out))?;
        }
        let burst = self.burst.map_or(String::new(), |burst| format!("; {burst:.1} packets a burst"));
        let cycles = format!("{}{burst}", self.cycles.said());
        line(f, "cycles a packet", self.cycles.total.round() as u64, &cycles)
    }

    fn checks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(numbered) = &self.numbered {
            line(f, "numbered frames, whole", numbered.good, "")?;
            line(f, "  missing below the highest", numbered.missing, "")?;
            line(f, "  damaged", numbered.corrupt, "must be 0")?;
            line(f, "  came again", numbered.again, "")?;
            if numbered.beyond > 0 {
                line(f, "  not kept track of", numbered.beyond, "give --verify a larger number")?;
            }
            line(f, "packets of others", numbered.foreign, "")?;
        }
        if let (Some(captured), Some(left_out)) = (self.captured, self.not_captured) {
            line(f, "packets in the capture file", captured, "")?;
            if left_out > 0 {
                let slow = self.capture_error.is_none();
                line(
                    f,
                    "  left out",
                    left_out,
                    if slow { "the file was too slow" } else { "the file failed" },
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_was_not_to_be_sent() {
        let mut at = PortSample::default();
        (at.port.tx, at.port.redirect_in, at.port.tx_overflow, at.nic.tx_too_long) = (10, 20, 3, 4);
        assert_eq!(to_send(&at), 23);
    }
}
