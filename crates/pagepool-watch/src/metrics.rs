//! What observers see, as metrics for Prometheus and compatible readers.
//!
//! Names  `pagepool_` and the counter's usual name. For an entry its kind comes between:
//!        `pagepool_socket_rx_packets`. A name that a pool's metric already has begins with `entry_`.
//! Labels the subject of a series: `process`, `pid` and `file`. Only `file` is a key, because processes of
//!        several pid namespaces may share name and number. For a pool also `pool` and `id`, and `interface`
//!        and `queue` if an entry below it has them; for its pages `place`. For an entry `name` and `id`. If
//!        a file has an id twice, later ones get `copy`: nothing is left out or repeated.
//! Kinds  a meaning that begins with "Now:" makes a gauge; without a meaning the kind is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use pagepool::published::{is_shown, shown};
use pagepool::{DeferredStats, Stats};

use crate::published::model::{EntryView, Life, PoolView, ProcessView, param, places};

/// Output format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricsFormat {
    /// OpenMetrics 1.0: `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    OpenMetrics,
    /// The text format of Prometheus 0.0.4, which the node exporter reads:
    /// `text/plain; version=0.0.4; charset=utf-8`.
    Prometheus,
}

/// Appends all counters of these processes, their pools and their other entries, as metrics.
///
/// `meaning` explains an entry's counter, given the entry's kind and the counter's name; `None` if unknown.
/// Counters of arenas and domains are already known. A process that publishes finds itself in
/// [`RunFolder::processes`](crate::RunFolder::processes), so this call can also export its own
/// metrics:
///
/// ```
/// use pagepool_watch::{MetricsFormat, RunFolder, write_metrics};
///
/// # let folder = std::env::temp_dir().join(format!("pagepool-metrics-{}", std::process::id()));
/// # // SAFETY: the example has one thread.
/// # unsafe { std::env::set_var("PAGEPOOL_RUN", &folder) };
/// let publication = pagepool::publish("metrics")?;
/// let mut own: Vec<_> = RunFolder::of_user()?.processes().into_iter().flatten().collect();
/// own.retain(|process| process.file == publication.path());
/// let mut text = String::new();
/// write_metrics(&mut text, &own, MetricsFormat::OpenMetrics, &|_, _| None);
/// assert!(own.len() == 1 && text.ends_with("# EOF\n"));
/// # drop(publication);
/// # std::fs::remove_dir(folder).unwrap();
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn write_metrics(
    to: &mut String,
    processes: &[ProcessView],
    format: MetricsFormat,
    meaning: &dyn Fn(&str, &str) -> Option<&'static str>,
) {
    let mut registry = Registry::with_prefix("pagepool");
    registry.register_collector(Box::new(Families::of(processes, meaning)));
    let written = match format {
        MetricsFormat::OpenMetrics => text::encode(to, &registry),
        MetricsFormat::Prometheus => prometheus_text::encode(to, &registry),
    };
    written.expect("a String takes everything");
}

type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug)]
enum Number {
    Count(u64),
    Seconds(f64),
}

#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    kind: MetricType,
    series: Vec<(Labels, Number)>,
    /// Number of series with these labels.
    labels: BTreeMap<Labels, u32>,
}

#[derive(Debug, Default)]
struct Families {
    all: Vec<Family>,
    places: BTreeMap<String, usize>,
}

impl Families {
    fn of(processes: &[ProcessView], meaning: &dyn Fn(&str, &str) -> Option<&'static str>) -> Self {
        let mut this = Self::default();
        processes.iter().for_each(|process| this.process(process));
        let pools =
            || processes.iter().flat_map(|process| process.pools.iter().map(move |pool| (process, pool)));
        pools().for_each(|(process, pool)| this.pool(process, pool));
        let taken: BTreeSet<String> = this.places.keys().cloned().collect();
        for process in processes {
            let entries = process.entries.iter();
            entries.for_each(|entry| this.entry(process, entry, &taken, meaning));
        }
        this
    }

    fn add(&mut self, name: &str, help: &str, kind: MetricType, mut labels: Labels, number: Number) {
        let place = *self.places.entry(name.to_owned()).or_insert_with(|| {
            let (series, labels) = (Vec::new(), BTreeMap::new());
            self.all.push(Family { name: name.to_owned(), help: one_line(help), kind, series, labels });
            self.all.len() - 1
        });
        let family = &mut self.all[place];
        labels.iter_mut().for_each(|(_, value)| *value = label(std::mem::take(value)));
        let times = family.labels.entry(labels.clone()).or_default();
        *times += 1;
        if *times > 1 {
            labels.push(("copy", times.to_string()));
        }
        family.series.push((labels, number));
    }

    fn gauge(&mut self, name: &str, help: &str, labels: Labels, number: Number) {
        self.add(name, help, MetricType::Gauge, labels, number);
    }

    fn process(&mut self, process: &ProcessView) {
        let labels = || of_process(process);
        let alive = Number::Count((process.life == Life::Alive).into());
        self.gauge("process_alive", "1 while the process runs, 0 after it died.", labels(), alive);
        let started = seconds(process.started);
        self.gauge("process_start_time_seconds", "Unix time of publication.", labels(), started);
        if let Life::Dead { last_sign } = process.life {
            let help = "Unix time at which a dead process was last known to run.";
            self.gauge("process_last_sign_seconds", help, labels(), seconds(last_sign));
        }
        let help = "Pools and entries of the process that are not shown.";
        self.gauge("process_not_shown", help, labels(), Number::Count(process.not_shown));
    }

    fn pool(&mut self, process: &ProcessView, pool: &PoolView) {
        let labels = || of_pool(process, pool);
        self.counters("", pool.stats.fields(), Stats::DOCS, &labels);
        let help = "Bytes of pages that no fragment used.";
        let waste = Number::Count(pool.frag_waste);
        self.add("frag_waste_bytes", help, MetricType::Counter, labels(), waste);
        if has_queue(pool) {
            self.counters("deferred_", pool.deferred.fields(), DeferredStats::DOCS, &labels);
        }
        for (place, count) in places(&pool.inflight) {
            let labels = [labels(), vec![("place", place.to_owned())]].concat();
            self.gauge("pages", "Pages of the pool by place.", labels, Number::Count(count));
        }
        let total = Number::Count(pool.inflight.total.max(0) as u64);
        self.gauge("inflight", "Pages of the pool, idle or out.", labels(), total);
        let bytes = Number::Count(pool.inflight_bytes());
        self.gauge("inflight_bytes", "Bytes of the pool's pages, idle or out.", labels(), bytes);
        if let Some(detached) = pool.detached {
            let help = "Unix time at which the pool ended with buffers out.";
            self.gauge("detach_time_seconds", help, labels(), seconds(detached));
        }
    }

    fn counters(
        &mut self,
        prefix: &str,
        fields: Vec<(&'static str, u64)>,
        docs: &[&str],
        labels: &dyn Fn() -> Labels,
    ) {
        for ((name, value), docs) in fields.into_iter().zip(docs) {
            let (name, number) = (format!("{prefix}{name}"), Number::Count(value));
            self.add(&name, docs, MetricType::Counter, labels(), number);
        }
    }

    fn entry(
        &mut self,
        process: &ProcessView,
        entry: &EntryView,
        taken: &BTreeSet<String>,
        meaning: &dyn Fn(&str, &str) -> Option<&'static str>,
    ) {
        for (counter, value) in &entry.counters {
            let name = metric_name(&entry.kind, counter);
            // An entry whose metric has the name of a pool's or process's would falsify that one.
            let name = if taken.contains(&name) { format!("entry_{name}") } else { name };
            let meaning = known(&entry.kind, counter).or_else(|| meaning(&entry.kind, counter));
            let kind = match meaning {
                None => MetricType::Unknown,
                Some(text) if text.trim_start().starts_with("Now:") => MetricType::Gauge,
                Some(_) => MetricType::Counter,
            };
            let help = meaning.unwrap_or("A counter that the process does not describe.");
            self.add(&name, help, kind, of_entry(process, entry), Number::Count(*value));
        }
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, kind, series, .. } in &self.all {
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            for (labels, number) in series {
                let one = metric.encode_family(labels)?;
                match (*number, kind) {
                    (Number::Count(count), MetricType::Counter) => ConstCounter::new(count).encode(one)?,
                    (Number::Count(count), _) => ConstGauge::new(count).encode(one)?,
                    (Number::Seconds(seconds), _) => ConstGauge::new(seconds).encode(one)?,
                }
            }
        }
        Ok(())
    }
}

/// A text as a label's value: unique to the text, and safe for a terminal.
fn label(text: String) -> String {
    const BACKSLASH: char = '\u{5c}';
    match text.chars().all(|c| is_shown(c) && c != BACKSLASH) {
        true => text,
        false => shown(&text.replace(BACKSLASH, "\u{5c}\u{5c}")).into_owned(),
    }
}

fn of_process(process: &ProcessView) -> Labels {
    let file = process.file.display().to_string();
    vec![("process", process.name.clone()), ("pid", process.pid.to_string()), ("file", file)]
}

fn of_pool(process: &ProcessView, pool: &PoolView) -> Labels {
    let mut labels = of_process(process);
    labels.extend([("pool", pool.name.clone()), ("id", pool.id.to_string())]);
    let below = process.entries.iter().filter(|entry| entry.pool_id() == Some(pool.id.into()));
    if let Some(entry) = below.into_iter().find(|entry| param(&entry.params, "queue").is_some()) {
        labels.extend(interface_and_queue(entry));
    }
    labels
}

fn of_entry(process: &ProcessView, entry: &EntryView) -> Labels {
    let mut labels = of_process(process);
    labels.extend([("name", entry.name.clone()), ("id", entry.id.to_string())]);
    labels.extend(interface_and_queue(entry));
    labels
}

fn interface_and_queue(entry: &EntryView) -> Labels {
    let of = |label| param(&entry.params, label).map(|value| (label, value.to_owned()));
    [of("interface"), of("queue")].into_iter().flatten().collect()
}

fn has_queue(pool: &PoolView) -> bool {
    param(&pool.params, "defer_capacity").is_some_and(|capacity| capacity != "0")
}

fn seconds(time: SystemTime) -> Number {
    Number::Seconds(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

fn known(kind: &str, counter: &str) -> Option<&'static str> {
    match (kind, counter) {
        ("arena", "committed_bytes") => Some("Now: bytes that the arena has committed."),
        ("domain", "mapped_bytes") => Some("Now: bytes mapped in the domain."),
        _ => None,
    }
}

/// Name of an entry's metric: only allowed letters, without the suffix that the formats append to counters.
fn metric_name(kind: &str, counter: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = format!("{kind}_{counter}").chars().map(plain).collect();
    name.trim_end_matches("_total").to_owned()
}

/// The first paragraph of a doc comment, without links and characters that a format would escape.
fn one_line(docs: &str) -> String {
    let first = docs.split("\n\n").next().unwrap_or_default();
    let mut text = first.split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some((open, close, end)) = link(&text) {
        let label = text[open + 1..close].to_owned();
        text.replace_range(open..end, &label);
    }
    text.replace(['\u{22}', '\\'], "'")
}

/// Start of a link in square brackets, end of its label, and end of the link.
fn link(text: &str) -> Option<(usize, usize, usize)> {
    let open = text.find('[')?;
    let close = open + text[open..].find(']')?;
    let end = match text[close + 1..].strip_prefix('(') {
        Some(target) => close + 2 + target.find(')')? + 1,
        None => close + 1,
    };
    Some((open, close, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::Inflight;
    use std::time::Duration;

    #[test]
    fn a_label_is_shown_and_belongs_to_one_text() {
        let texts = ["/run/a", "/run/a\u{1b}[31m\u{202e}\u{2028}\n", "/run/a\\u{1b}", "\u{1b}", "\\u{1b}"];
        let labels: BTreeSet<_> = texts.iter().map(|text| label((*text).to_owned())).collect();
        assert_eq!((labels.len(), label("/run/a".into()).as_str()), (texts.len(), "/run/a"));
        assert!(labels.iter().all(|label| label.chars().all(is_shown)), "{labels:?}");
    }

    fn pool(id: u32, name: &str) -> PoolView {
        let time = UNIX_EPOCH + Duration::from_secs(10);
        let (mut stats, mut inflight) = (Stats::default(), Inflight::default());
        (stats.alloc_fast, inflight.total, inflight.out) = (7, 3, 3);
        PoolView {
            id,
            mem_id: 1,
            name: name.into(),
            area_id: 1,
            thread: None,
            ifindex: None,
            created: time,
            detached: None,
            page_bytes: 4096,
            stats,
            inflight,
            frag_waste: 0,
            deferred: DeferredStats::default(),
            holders: None,
            params: Vec::new(),
        }
    }

    fn process() -> ProcessView {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let socket = EntryView {
            kind: "socket".into(),
            id: 1,
            parent: 1,
            name: "eth0:2".into(),
            params: vec![pair("interface", "eth0"), pair("queue", "2")],
            counters: vec![("rx_packets".into(), 5), ("in_rx".into(), 6), ("odd name".into(), 9)],
        };
        ProcessView {
            name: "drop".into(),
            pid: 12,
            pid_here: Some(12),
            started: UNIX_EPOCH + Duration::from_millis(1500),
            version: "0.1.0".into(),
            life: Life::Alive,
            not_shown: 0,
            not_read: 0,
            pools: vec![pool(1, "a\"b\\c"), pool(2, "rx1")],
            entries: vec![socket],
            file: "drop.12".into(),
        }
    }

    fn written(processes: &[ProcessView], format: MetricsFormat) -> String {
        let meaning = |_: &str, counter: &str| match counter {
            "rx_packets" => Some("Received, see [`x`](crate::x).\n\nIf it rises: normal."),
            "in_rx" => Some("Now: waiting."),
            _ => None,
        };
        let mut text = String::new();
        write_metrics(&mut text, processes, format, &meaning);
        text
    }

    #[test]
    fn series_have_counter_names_labels_types_and_help() {
        let text = written(&[process()], MetricsFormat::OpenMetrics);
        let pool =
            r#"process="drop",pid="12",file="drop.12",pool="a\"b\\\\c",id="1",interface="eth0",queue="2""#;
        let entry =
            r#"process="drop",pid="12",file="drop.12",name="eth0:2",id="1",interface="eth0",queue="2""#;
        for line in [
            "# TYPE pagepool_alloc_fast counter".to_owned(),
            format!("pagepool_alloc_fast_total{{{pool}}} 7"),
            format!("pagepool_pages{{{pool},place=\"out\"}} 3"),
            format!("pagepool_inflight_bytes{{{pool}}} 12288"),
            r#"pagepool_alloc_fast_total{process="drop",pid="12",file="drop.12",pool="rx1",id="2"} 7"#
                .to_owned(),
            r#"pagepool_process_start_time_seconds{process="drop",pid="12",file="drop.12"} 1.5"#.to_owned(),
            "# HELP pagepool_socket_rx_packets Received, see `x`.".to_owned(),
            format!("pagepool_socket_rx_packets_total{{{entry}}} 5"),
            "# TYPE pagepool_socket_in_rx gauge".to_owned(),
            format!("pagepool_socket_in_rx{{{entry}}} 6"),
            "# TYPE pagepool_socket_odd_name unknown".to_owned(),
            format!("pagepool_socket_odd_name{{{entry}}} 9"),
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        for name in Stats::NAMES {
            let is_its = |line: &str| line.starts_with(&format!("pagepool_{name}_total{{"));
            assert_eq!(text.lines().filter(|line| is_its(line)).count(), 2, "{name}: {text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
        assert!(!text.contains("pagepool_deferred_queued"), "no pool has a queue");
        let text = written(&[process()], MetricsFormat::Prometheus);
        assert!(text.contains("# TYPE pagepool_alloc_fast_total counter\n"), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
    }

    #[test]
    fn nothing_is_left_out_and_no_series_comes_twice() {
        let last_sign = UNIX_EPOCH + Duration::from_secs(20);
        // Same name and number: in another pid namespace, and dead.
        let namesake = ProcessView { file: "drop.12-1".into(), ..process() };
        let dead = ProcessView { life: Life::Dead { last_sign }, file: "drop.12-2".into(), ..process() };
        let mut twice = ProcessView { file: "drop.14".into(), ..process() };
        twice.pools.push(pool(2, "rx1"));
        let more = [("alloc", "fast"), ("alloc", "fast_total"), ("a_b", "c"), ("a", "b_c")];
        twice.entries.extend(more.map(|(kind, counter)| {
            let entry = twice.entries[0].clone();
            EntryView { kind: kind.into(), counters: vec![(counter.into(), 1)], ..entry }
        }));
        let text = written(&[dead, process(), namesake, twice], MetricsFormat::OpenMetrics);
        let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let names: BTreeSet<_> = series.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(names.len(), series.len(), "{text}");
        let count = |name: &str| series.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!(count("pagepool_process_alive{"), 4, "{text}");
        assert_eq!(count("pagepool_alloc_fast_total{"), 9, "those of pools: {text}");
        assert_eq!((count("pagepool_entry_alloc_fast{"), count("pagepool_a_b_c{")), (2, 2), "{text}");
        for line in [
            "pagepool_process_alive{process=\"drop\",pid=\"12\",file=\"drop.12-1\"} 1",
            "pagepool_process_last_sign_seconds{process=\"drop\",pid=\"12\",file=\"drop.12-2\"} 20.0",
        ] {
            assert!(series.contains(&line), "{line}: {text}");
        }
        let families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(families.iter().collect::<BTreeSet<_>>().len(), families.len(), "{text}");
    }
}
