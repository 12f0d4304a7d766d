//! What became of it, for people and for programs.

use std::fmt;

use pagepool::{PAGE_SIZE, PoolRef};
use serde::Serialize;
use serde_json::{Map, Value};

use super::course::Sample;
use super::plan::DemoAction;
use crate::engine::figures;
use crate::engine::port_sample::PortSample;
use crate::report::number::grouped;

/// Everything in the JSON output.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// `in_memory`: both NICs are. `af_xdp_native_copy` and the like: where the XDP program ran, and who moved the bytes.
    mode: String,
    program: &'static str,
    size: usize,
    /// How long the source sent.
    seconds: f64,
    /// Packets that came to the end of their way.
    packets: u64,
    pps: f64,
    /// Content of the transfer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    gbit_s: Option<f64>,
    sent: u64,
    /// Packets that found a queue full.
    dropped: u64,
    /// Packets that were sent, and neither arrived nor are known to have been dropped; or that arrived unsent.
    lost: u64,
    corrupt: u64,
    pages_taken: u64,
    slow_after_warmup: u64,
    missing: u64,
    /// Accesses, descriptors and lengths of the NICs that were refused.
    nic_errors: u64,
    recycled_percent: Option<f64>,
    ok: bool,
    pools: Vec<Map<String, Value>>,
    ports: Vec<Map<String, Value>>,
}

/// What the threads counted.
#[derive(Debug)]
pub struct Counted {
    pub mode: String,
    pub program: DemoAction,
    pub size: usize,
    pub seconds: f64,
    pub sent: u64,
    pub arrived: u64,
    pub corrupt: u64,
    /// Of a transfer between two kernels.
    pub gbit_s: Option<f64>,
    /// When the warm-up was over, and when everything had drained.
    pub warm: Sample,
    pub end: Sample,
}

impl Verdict {
    /// Looks at the pools, which have ended, too.
    pub fn of(counted: &Counted, pools: &[PoolRef]) -> Self {
        let Counted { program, size, seconds, sent, arrived, corrupt, warm, end, .. } = counted;
        let dropped = figures::dropped(end);
        let slow_after_warmup = figures::slow(warm, end);
        let missing = pools.iter().map(|pool| pool.inflight().total.unsigned_abs()).sum();
        let lost = sent.abs_diff(arrived + dropped);
        let nic_errors = figures::nic_errors(end);
        Self {
            mode: counted.mode.clone(),
            program: program.name(),
            size: *size,
            seconds: *seconds,
            packets: *arrived,
            pps: *arrived as f64 / seconds,
            gbit_s: counted.gbit_s,
            sent: *sent,
            dropped,
            lost,
            corrupt: *corrupt,
            pages_taken: pools.iter().map(|pool| pool.stats().hold).sum(),
            slow_after_warmup,
            missing,
            nic_errors,
            recycled_percent: figures::recycled_percent(warm, end),
            ok: *arrived > 0
                && counted.gbit_s.is_none_or(has_moved)
                && [lost, *corrupt, slow_after_warmup, missing, nic_errors] == [0; 5],
            pools: pools.iter().map(|pool| named(pool.name(), pool.stats().fields())).collect(),
            ports: end.iter().map(port).collect(),
        }
    }

    /// Whether all is well.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    /// What the packets met with, as far as there is something to say.
    fn complaints(&self) -> Vec<String> {
        let all = [
            (self.packets == 0, "no packet came to the end of its way".to_owned()),
            (!self.gbit_s.is_none_or(has_moved), "no byte of the transfer arrived".to_owned()),
            (self.lost > 0, format!("{} packets are not accounted for", grouped(self.lost))),
            (self.corrupt > 0, format!("{} packets were damaged on their way", grouped(self.corrupt))),
            (
                self.slow_after_warmup > 0,
                format!("the arena was asked {} times", grouped(self.slow_after_warmup)),
            ),
            (self.missing > 0, format!("{} buffers never came home", grouped(self.missing))),
            (
                self.nic_errors > 0,
                format!("the NICs did {} things that they must not", grouped(self.nic_errors)),
            ),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect()
    }

    /// Who may have wanted too much.
    fn why_dropped(&self) -> &'static str {
        match (self.dropped, self.gbit_s) {
            (0, _) => "",
            (_, None) => "the source outruns the rest",
            (_, Some(_)) => "TCP sends them again",
        }
    }

    /// What was looked at on the way.
    fn checked(&self) -> &'static str {
        match self.gbit_s {
            Some(_) => "TCP's every byte checked",
            None if self.program == DemoAction::Drop.name() => "dropped unread",
            None => "every byte checked on arrival",
        }
    }
}

/// Whether a transfer had any content: connecting takes packets, too.
fn has_moved(gbit_s: f64) -> bool {
    gbit_s > 0.0
}

fn named(name: &str, fields: impl IntoIterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    std::iter::once(("name".to_owned(), name.into())).chain(fields).collect()
}

fn port(at: &PortSample) -> Map<String, Value> {
    let mut fields = object(at.port.entries().chain(at.paths.entries()));
    fields.insert("nic".into(), Value::Object(object(at.nic.entries())));
    if let Some(xsk) = at.xsk {
        fields.insert("xsk".into(), Value::Object(object(xsk.entries())));
    }
    fields
}

fn object(fields: impl Iterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    fields.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, value: u64, more: &str| {
            writeln!(f, "{}", format!("{name:<32} {:>13}  {more}", grouped(value)).trim_end())
        };
        let mebibytes = self.pages_taken as f64 * PAGE_SIZE as f64 / f64::from(1 << 20);
        writeln!(f)?;
        if let Some(gbit_s) = self.gbit_s {
            writeln!(f, "{:<32} {gbit_s:>13.2}  TCP, kernel to kernel", "Gbit/s")?;
        }
        line(f, "packets", self.packets, self.checked())?;
        line(f, "packets a second", self.pps as u64, &format!("over {:.1} s", self.seconds))?;
        line(f, "dropped, a queue was full", self.dropped, self.why_dropped())?;
        line(f, "pages ever taken from the arena", self.pages_taken, &format!("{mebibytes:.1} MiB"))?;
        line(f, "slow allocations after warm-up", self.slow_after_warmup, "must be 0: calls to the arena")?;
        line(f, "buffers missing at the end", self.missing, "must be 0")?;
        line(f, "packets damaged, or lost", self.corrupt + self.lost, "must be 0")?;
        if self.ok {
            return write!(
                f,
                "\nAll is well: {} packets went through {} pages.\nEvery page is home, and the arena was not asked again.",
                grouped(self.packets),
                grouped(self.pages_taken)
            );
        }
        write!(f, "\nNOT well: {}.", self.complaints().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::{Arena, ArenaParams, Pool, PoolParams};

    /// Ten packets that went well.
    fn well() -> Counted {
        let [warm, end] = [Sample::default(); 2];
        let program = DemoAction::Forward;
        let mode = "in_memory".to_owned();
        Counted {
            mode,
            program,
            size: 64,
            seconds: 1.0,
            sent: 10,
            arrived: 10,
            corrupt: 0,
            gbit_s: None,
            warm,
            end,
        }
    }

    /// What a person reads of them, without whom all would be well; and that the status agrees.
    fn said(counted: &Counted, pools: &[PoolRef]) -> String {
        let verdict = Verdict::of(counted, pools);
        let text = verdict.to_string();
        assert_eq!(verdict.is_ok(), text.contains("All is well"), "{text}");
        text.lines().last().unwrap_or("").to_owned()
    }

    #[test]
    fn whatever_went_wrong_is_said() {
        assert!(!said(&well(), &[]).contains("NOT"));
        for sent in [8, 12] {
            let odd = said(&Counted { sent, ..well() }, &[]);
            assert_eq!(odd, "NOT well: 2 packets are not accounted for.");
        }
        let none = said(&Counted { sent: 0, arrived: 0, ..well() }, &[]);
        assert_eq!(none, "NOT well: no packet came to the end of its way.");
        let empty = said(&Counted { gbit_s: Some(0.0), ..well() }, &[]);
        assert_eq!(empty, "NOT well: no byte of the transfer arrived.", "packets alone are none");
        let corrupt = said(&Counted { corrupt: 3, ..well() }, &[]);
        assert_eq!(corrupt, "NOT well: 3 packets were damaged on their way.");
        let mut slow = well();
        slow.end[1].pool.0.alloc_slow = 4;
        assert_eq!(said(&slow, &[]), "NOT well: the arena was asked 4 times.");
        let mut wrong = well();
        (wrong.end[0].nic.tx_bad_descriptor, wrong.end[1].nic.faults) = (2, 3);
        assert_eq!(said(&wrong, &[]), "NOT well: the NICs did 5 things that they must not.");
        let mut dropped = well();
        (dropped.sent, dropped.end[0].port.pass_refused, dropped.end[1].port.tx_overflow) = (15, 3, 2);
        assert!(!said(&dropped, &[]).contains("NOT"), "a queue was full: that is known");
        (dropped.sent, dropped.end[0].nic.rx_no_buffer) = (19, 4);
        assert!(!said(&dropped, &[]).contains("NOT"), "a receive ring is one, too");
    }

    #[test]
    fn a_buffer_that_leaks_is_missing() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
        let home = pool.handle();
        std::mem::forget(pool.alloc_page().unwrap());
        drop(pool);
        assert_eq!(said(&well(), &[home]), "NOT well: 1 buffers never came home.");
    }
}
