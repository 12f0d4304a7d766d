//! `--json=lines`: the course of a run, as one JSON object a line.
//!
//! The first line says what runs. Each line of figures has the counts since the line before it, so they add
//! up to the totals of the last line, which has the verdict.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::queue_figures::{NamedCounts, fields, total_period_rate};
use super::queue_name::QueueName;
use crate::report::{FigureOptions, JsonForm, Verdict, object, print_json_line};
use crate::traffic::{PortSample, Trigger};

/// The kind of the last line.
const LAST: &str = "last";

/// What a run counts in addition to its queues.
pub struct ExtraCounts {
    /// The key of its counts.
    pub name: &'static str,
    pub counts: NamedCounts,
    /// Current values that are not counts.
    pub now: Map<String, Value>,
}

/// The counts of a run at a time since its start.
pub struct RunMoment {
    pub at: Duration,
    pub ports: Vec<PortSample>,
    pub beside: Option<ExtraCounts>,
}

pub struct JsonLines {
    command: &'static str,
    /// The names of the ports, in the order of the samples.
    names: Vec<QueueName>,
    warm: Vec<PortSample>,
    at: Duration,
    before: Vec<PortSample>,
    /// The last counts in addition to the queues.
    beside: NamedCounts,
}

impl JsonLines {
    /// Prints the first line, with `fields` that say what runs. `warm`: the counts at the end of the warm-up.
    /// `None` if the options ask for another form.
    pub fn begin(
        options: FigureOptions,
        command: &'static str,
        names: Vec<QueueName>,
        warm: &[PortSample],
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Option<Self> {
        if options.json != Some(JsonForm::Lines) {
            return None;
        }
        let before = vec![PortSample::default(); warm.len()]; // the totals include the warm-up
        let (warm, at) = (warm.to_vec(), Duration::ZERO);
        let lines = Self { command, names, warm, at, before, beside: NamedCounts::new() };
        let mut line = lines.head("first", Duration::ZERO);
        line.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        line.insert("process".into(), std::process::id().into());
        line.extend(object(fields));
        line.insert("queues".into(), lines.names.iter().map(QueueName::fields).collect());
        print_json_line(&line);
        Some(lines)
    }

    pub fn figures(&mut self, trigger: Trigger, now: RunMoment) {
        let kind = match trigger {
            Trigger::Timer => "period",
            Trigger::Request => "asked",
        };
        print_json_line(&self.line(kind, now));
    }

    /// Prints the last line, which has the verdict; without JSON lines, prints the verdict as the options say.
    /// Returns the status.
    pub fn end(lines: Option<Self>, now: RunMoment, verdict: &Verdict, options: FigureOptions) -> ExitCode {
        let Some(mut lines) = lines else { return verdict.print(options.is_json()) };
        let mut line = lines.line(LAST, now);
        line.insert("verdict".into(), serde_json::to_value(verdict).unwrap_or(Value::Null));
        print_json_line(&line);
        verdict.status()
    }

    /// The fields that every line begins with.
    fn head(&self, kind: &str, at: Duration) -> Map<String, Value> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let milliseconds = |time: Duration| Value::from((time.as_secs_f64() * 1e3).round() / 1e3);
        let (time, at) = (milliseconds(time), milliseconds(at));
        object([("line", kind.into()), ("command", self.command.into()), ("time", time), ("at", at)])
    }

    fn line(&mut self, kind: &str, RunMoment { at, ports: now, beside }: RunMoment) -> Map<String, Value> {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        let mut line = self.head(kind, at);
        line.insert("seconds".into(), seconds.into());
        // The last line has no rates: its time leaves out the end of the run, but its counts do not.
        let seconds = if kind == LAST { 0.0 } else { seconds };
        line.insert("all".into(), self.sums(&now, seconds, |_| true).into());
        if let Some(ExtraCounts { name, counts, now }) = beside {
            self.beside.resize(counts.len(), ("", 0));
            let mut fields = total_period_rate(&self.beside, &counts, seconds);
            fields.extend(now);
            line.insert(name.into(), fields.into());
            self.beside = counts;
        }
        line.insert("interfaces".into(), self.interfaces(&now, seconds));
        line.insert("queues".into(), self.queues(&now, seconds));
        (self.at, self.before) = (at, now);
        line
    }

    fn sums(&self, now: &[PortSample], seconds: f64, of: impl Fn(&QueueName) -> bool) -> Map<String, Value> {
        let some = |ports: &[PortSample]| -> Vec<PortSample> {
            self.names.iter().zip(ports).filter(|(name, _)| of(name)).map(|(_, port)| *port).collect()
        };
        let [warm, before, now] = [&self.warm[..], &self.before, now].map(some);
        fields([&warm, &before, &now], seconds)
    }

    /// The figures of each interface, in the order of the command's arguments.
    fn interfaces(&self, now: &[PortSample], seconds: f64) -> Value {
        let mut names: Vec<&str> = Vec::new();
        for QueueName { interface, .. } in &self.names {
            if !names.contains(&&**interface) {
                names.push(interface);
            }
        }
        let one = |name: &&str| {
            let mut fields = object([("interface", *name)]);
            fields.extend(self.sums(now, seconds, |queue| queue.interface == *name));
            Value::from(fields)
        };
        names.iter().map(one).collect()
    }

    /// The figures of each queue, with all counters of its port and its pool.
    fn queues(&self, now: &[PortSample], seconds: f64) -> Value {
        let one = |(name, port): (&QueueName, &PortSample)| {
            let mut fields = name.fields();
            fields.extend(self.sums(now, seconds, |queue| queue == name));
            fields.insert("pool".into(), object(port.pool.0.fields()).into());
            fields.insert("port".into(), port.fields().into());
            Value::from(fields)
        };
        self.names.iter().zip(now).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_figures_per_queue_and_per_interface() {
        let names = [("w", 0), ("e", 0), ("w", 1)];
        let names = names.map(|(interface, queue)| QueueName { interface: interface.into(), queue });
        let (warm, mut now) = ([PortSample::default(); 3], [PortSample::default(); 3]);
        (now[0].nic.rx_packets, now[1].nic.rx_packets, now[2].nic.rx_packets) = (1, 2, 4);
        let mut options = FigureOptions::default();
        options.json = Some(JsonForm::Lines);
        let mut lines = JsonLines::begin(options, "drop", names.to_vec(), &warm, []).unwrap();
        let moment = |seconds, now: &[PortSample], beside| RunMoment {
            at: Duration::from_secs(seconds),
            ports: now.to_vec(),
            beside,
        };
        let line = lines.line("period", moment(2, &now, None));
        let received = |of: &Value| of["total"]["received"].as_u64();
        assert_eq!((received(&line["all"]), &line["seconds"]), (Some(7), &2.0.into()));
        assert_eq!([0, 1].map(|at| received(&line["interfaces"][at])), [Some(5), Some(2)]);
        assert_eq!([0, 1].map(|at| line["interfaces"][at]["interface"].as_str()), [Some("w"), Some("e")]);
        assert_eq!([0, 1, 2].map(|at| received(&line["queues"][at])), [Some(1), Some(2), Some(4)]);
        assert_eq!(
            (&line["queues"][2]["name"], &line["queues"][2]["port"]["nic"]["rx_packets"]),
            (&"w:1".into(), &4.into())
        );
        now[0].nic.rx_packets = 3;
        let beside = |good| ExtraCounts { name: "numbered", counts: vec![("good", good)], now: Map::new() };
        let line = lines.line("asked", moment(3, &now, Some(beside(5))));
        assert_eq!(
            (&line["all"]["period"]["received"], &line["numbered"]["period"]["good"]),
            (&2.into(), &5.into())
        );
        let line = lines.line(LAST, moment(3, &now, Some(beside(6))));
        assert_eq!(
            (&line["all"]["period"]["received"], &line["numbered"]["period"]["good"]),
            (&0.into(), &1.into())
        );
        assert!(line["all"]["rate"]["received"].is_null(), "the end takes time, too");
    }
}
