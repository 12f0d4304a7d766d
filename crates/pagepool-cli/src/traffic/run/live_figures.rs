//! The figures that are printed while a command runs: some lines each time, for people or as JSON.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Map;

use super::attached::Record;
use crate::report::{FigureOptions, LiveLine, Terminal, Verdict, grouped, per_second};
use crate::traffic::command::TrafficPlan;
use crate::traffic::figures::losses::LOSSES;
use crate::traffic::figures::queue_table::TableRoom;
use crate::traffic::figures::{ExtraCounts, JsonLines, QueueName, RunMoment, losses, queue_table};
use crate::traffic::sockets::common_mode;
use crate::traffic::{Checked, PortSample, Sample, Trigger, figures, sum};

/// The figures shown last, and those at the end of the warm-up.
pub struct LiveFigures {
    options: FigureOptions,
    warm: Sample,
    /// The names of the ports, in the order of the samples.
    names: Vec<QueueName>,
    at: Duration,
    before: Sample,
    /// JSON lines, which replace all other output.
    json_lines: Option<JsonLines>,
}

impl LiveFigures {
    pub fn begin(plan: &TrafficPlan<'_>, record: &Record, warm: Sample) -> Self {
        let (options, interfaces, names) = (plan.options.figures, &record.interfaces, record.names.clone());
        interfaces.iter().for_each(|interface| options.print(interface));
        let opened = serde_json::to_value(interfaces).unwrap_or_default();
        let what = [("mode", common_mode(interfaces).into()), ("opened", opened)];
        let json_lines = JsonLines::begin(options, plan.name, names.clone(), &warm.ports, what);
        Self { options, before: warm.clone(), at: Duration::ZERO, warm, names, json_lines }
    }

    /// Shows the current figures.
    pub fn show(&mut self, trigger: Trigger, at: Duration, now: Sample) {
        if let Some(lines) = &mut self.json_lines {
            let beside = now.checked.map(numbered);
            return lines.figures(trigger, RunMoment { at, ports: now.ports, beside });
        }
        let terminal = Terminal::of_output().filter(|_| !self.options.is_json());
        let lines = self.lines(at, now, TableRoom::on(terminal));
        self.options.show(&lines);
    }

    pub fn end(self, at: Duration, now: Sample, verdict: &Verdict) -> ExitCode {
        let now = RunMoment { at, ports: now.ports, beside: now.checked.map(numbered) };
        JsonLines::end(self.json_lines, now, verdict, self.options)
    }

    /// The lines with what changed since the previous ones.
    fn lines(&mut self, at: Duration, now: Sample, room: TableRoom) -> Vec<LiveLine> {
        let seconds = at.saturating_sub(self.at).as_secs_f64().max(1e-3); // two requests at once
        let ports = &now.ports;
        let rate = |of: fn(&[PortSample]) -> (u64, u64)| {
            let ((packets, bytes), (old, old_bytes)) = (of(ports), of(&self.before.ports));
            let mbit_s = bytes.saturating_sub(old_bytes) as f64 * 8e-6 / seconds;
            format!("{:>11}/s {mbit_s:>8.1} Mbit/s", per_second(packets.saturating_sub(old), seconds))
        };
        let received = rate(|ports| (sum(ports, |at| at.nic.rx_packets), sum(ports, |at| at.nic.rx_bytes)));
        let sent = rate(|ports| (sum(ports, PortSample::sent), sum(ports, PortSample::sent_bytes)));
        let mut lines = vec![
            format!("{:>4}s  in {received}   out {sent}", at.as_secs()),
            pool_line(ports, &self.warm.ports),
            figures::buffers_out(ports),
        ];
        if let Some(checked) = now.checked {
            let (good, corrupt) = (grouped(checked.good), grouped(checked.corrupt));
            lines.push(format!("numbered: good {good}, damaged {corrupt}"));
        }
        lines.extend(figures::kernel_problems(ports));
        let mut lines: Vec<_> = lines.into_iter().map(LiveLine::plain).collect();
        let problems = loss_lines(&self.before.ports, ports, seconds).into_iter();
        lines.extend(problems.chain(refused(&self.before.ports, ports, seconds)).map(LiveLine::bad));
        let table = queue_table::lines(&self.names, &self.before.ports, ports, seconds, room.below(&lines));
        lines.extend(table.into_iter().map(LiveLine::plain));
        (self.at, self.before) = (at, now);
        room.indent(&mut lines);
        lines
    }
}

/// What `--verify` has found so far.
fn numbered(Checked { good, corrupt }: Checked) -> ExtraCounts {
    ExtraCounts { name: "numbered", counts: vec![("good", good), ("corrupt", corrupt)], now: Map::new() }
}

fn pool_line(ports: &[PortSample], warm: &[PortSample]) -> String {
    let idle = sum(ports, |PortSample { pool: (_, pages), .. }| {
        pages.cache + pages.lanes + pages.uncollected + pages.ring
    });
    let recycled = figures::recycled_percent(warm, ports);
    let recycled = recycled.map_or("nothing".into(), |percent| format!("{percent:.2} %"));
    let (slow, idle) = (grouped(figures::slow(warm, ports)), grouped(idle));
    format!("pool: recycled {recycled}, slow {slow}; idle {idle}")
}

/// How often per second a driver refused a call to send.
fn refused(before: &[PortSample], now: &[PortSample], seconds: f64) -> Option<String> {
    let [old, now] = [before, now].map(|ports| sum(ports, |at| at.nic.calls_refused));
    let rate = (now.saturating_sub(old) as f64 / seconds) as u64;
    (rate > 0).then(|| format!("calls to send refused {}/s by the driver", grouped(rate)))
}

/// Packets lost per second, by reason.
fn loss_lines(before: &[PortSample], now: &[PortSample], seconds: f64) -> Vec<String> {
    let new = |loss: &losses::Loss| loss.count(now).saturating_sub(loss.count(before));
    let lost = LOSSES.iter().map(|loss| (new(loss), loss.reason(before, now))).filter(|(new, _)| *new > 0);
    lost.map(|(new, why)| format!("lost {}/s: {why}", per_second(new, seconds))).collect()
}
