//! `pagepool export`: in a file and on standard output, read as Prometheus reads it; scrapes.rs has HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pagepool::{DeferredStats, Stats};
use pagepool_lab::TempFolder;
use pagepool_net::{DeviceStats, ForwardStats, KernelStats, PathStats};
use serde_json::{Value, json};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
/// Nothing that is waited for here takes as long.
pub const LIMIT: Duration = Duration::from_secs(60);
/// What is about no process.
const OF_THE_FOLDER: &str = "pagepool_unreadable_files";

/// A demonstration that publishes in a folder of its own, and ends with this value.
pub struct Run {
    _demo: Ended,
    pub folder: TempFolder,
}

/// A child of this process that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    /// Starts it, and waits until its ports have counted something.
    pub fn new() -> Self {
        let folder = TempFolder::new("pagepool-export").expect("a new folder");
        let demo = ["demo", "--on", "memory", "--seconds", "600"];
        let demo = command(&folder, &demo).stdout(Stdio::null()).spawn().expect("the binary");
        let (run, start) = (Self { _demo: Ended(demo), folder }, Instant::now());
        while !run
            .said(&["export"])
            .lines()
            .any(|line| line.starts_with("pagepool_nic_rx_packets_total{") && !line.ends_with(" 0"))
        {
            assert!(start.elapsed() < LIMIT, "{}", run.said(&["export"]));
            std::thread::sleep(Duration::from_millis(50));
        }
        run
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = command(&self.folder, arguments).output().expect("the binary");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }
}

pub fn command(folder: &TempFolder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool"));
    command.args(arguments).env("PAGEPOOL_RUN", folder.path().join("run")).stderr(Stdio::piped());
    command
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A metric as a reader of the formats has it.
#[derive(Debug, Default)]
pub struct Metric {
    kind: String,
    help: String,
    pub series: BTreeMap<String, f64>,
}

/// Reads either format, strictly: metrics in one piece, with a kind and a meaning before their series; names
/// and labels of the letters that they may have; each series once.
pub fn read(text: &str) -> BTreeMap<String, Metric> {
    let (mut metrics, mut current) = (BTreeMap::<String, Metric>::new(), String::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a meaning");
            let new = Metric { help: help.to_owned(), ..Metric::default() };
            assert!(metrics.insert(name.to_owned(), new).is_none(), "{name} is there twice");
            current = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let kind = kind.strip_prefix(&format!("{current} ")).expect("the metric of the line before");
            assert!(["counter", "gauge", "unknown", "untyped"].contains(&kind), "{line}");
            metrics.get_mut(&current).expect("its meaning").kind = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let metric = metrics.get_mut(&current).expect("a metric");
            assert!(!metric.kind.is_empty(), "no kind before {line}");
            let of_open_metrics = metric.kind == "counter" && name == format!("{current}_total");
            assert!(of_open_metrics || name == current, "{line} below {current}");
            match name {
                OF_THE_FOLDER => assert_eq!(labels, "", "{line}"),
                _ => check_labels(labels),
            }
            let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(metric.series.insert(labels.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    for (name, metric) in &metrics {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(letters && name.starts_with("pagepool_") && !metric.series.is_empty(), "{name}");
        assert!(!metric.help.is_empty() && !metric.help.contains(['"', '\\', '[']), "{}", metric.help);
    }
    metrics
}

fn check_labels(labels: &str) {
    let labels = labels.strip_suffix('}').expect("an end of the labels");
    let mut names = BTreeSet::new();
    for label in labels.split("\",") {
        let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {label}"));
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{labels}");
        assert!(!value.trim_end_matches('"').contains(['"', '\n']), "{labels}");
        assert!(names.insert(name), "{name} is there twice: {labels}");
    }
    assert!(names.contains("process") && names.contains("pid"), "{labels}");
}

#[test]
fn every_counter_is_a_metric_and_the_format_is_right() {
    let run = Run::new();
    let openmetrics = run.said(&["export"]);
    assert!(openmetrics.ends_with("\n# EOF\n"), "{openmetrics}");
    let metrics = read(&openmetrics);
    for name in Stats::NAMES {
        let metric = &metrics[&format!("pagepool_{name}")];
        assert_eq!((&*metric.kind, metric.series.len()), ("counter", 2), "{name}");
    }
    for name in DeviceStats::NAMES.iter().chain(KernelStats::NAMES) {
        assert!(metrics.contains_key(&format!("pagepool_nic_{name}")), "{name}");
    }
    for name in ForwardStats::NAMES.iter().chain(PathStats::NAMES) {
        assert!(metrics.contains_key(&format!("pagepool_port_{name}")), "{name}");
    }
    assert_eq!(metrics["pagepool_nic_in_rx"].kind, "gauge");
    assert!(metrics.values().all(|metric| metric.kind != "unknown"), "{openmetrics}");
    let labels = metrics["pagepool_pages"].series.keys().next().expect("a pool");
    for label in ["pool=\"nic0\"", "id=\"1\"", "interface=\"nic0\"", "queue=\"0\"", "place=\""] {
        assert!(labels.contains(label), "{labels}");
    }
    assert!(metrics["pagepool_process_alive"].series.values().all(|&alive| alive == 1.0));
}

/// Every container's program is process 1.
#[test]
fn processes_of_one_name_and_number_are_all_exported() {
    let name = "processes_of_one_name_and_number_are_all_exported";
    let folder = TempFolder::new("pagepool-namesakes").expect("a new folder");
    let run = folder.path().join("run");
    let contained = |arguments: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-pf", "--mount-proc", "--kill-child", env!("CARGO_BIN_EXE_pagepool")]).args(arguments);
        unshare.env("PAGEPOOL_RUN", &run).stdout(Stdio::null()).stderr(Stdio::null());
        unshare
    };
    if !contained(&["--version"]).status().is_ok_and(|status| status.success()) {
        return println!("SKIP {name}: no pid namespaces, which require root");
    }
    let demo = ["demo", "--on", "memory", "--seconds", "600"];
    let _both = [(); 2].map(|()| Ended(contained(&demo).spawn().expect("it runs")));
    let start = Instant::now();
    let text = loop {
        let exported = text(&command(&folder, &["export"]).output().expect("the binary").stdout).to_owned();
        if exported.matches("pool=\"nic1\"").count() > 1
            && exported.matches("pagepool_process_alive{").count() == 2
        {
            break exported;
        }
        assert!(start.elapsed() < LIMIT, "{exported}");
        std::thread::sleep(Duration::from_millis(20));
    };
    for file in ["demo.1.pagepool", "demo.1-1.pagepool"] {
        let path = run.join(file);
        let labels = format!("{{process=\"demo\",pid=\"1\",file=\"{}\"}} 1", path.display());
        assert!(text.contains(&format!("pagepool_process_alive{labels}\n")), "{file}: {text}");
    }
    let listed = command(&folder, &["list"]).output().expect("the binary");
    let titles: Vec<_> =
        self::text(&listed.stdout).lines().filter(|line| line.contains(", pid 1: ")).collect();
    assert!(titles.len() == 2 && titles[0].ends_with("; demo.1-1.pagepool"), "{titles:?}");
    assert!(titles[1].ends_with("; demo.1.pagepool"), "{titles:?}");
    let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let names: BTreeSet<_> = series.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    assert_eq!(names.len(), series.len(), "no series comes twice: {text}");
}

#[test]
fn a_file_is_exchanged_as_a_whole_and_read_by_everybody() {
    let run = Run::new();
    let path = run.folder.path().join("pagepool.prom");
    let to = path.to_str().expect("text");
    assert_eq!(run.said(&["export", "--textfile", to]), "");
    let first = fs::read_to_string(&path).expect("the file");
    let metrics = read(&first);
    promtool(&["check", "metrics"], Some(&first));
    assert!(metrics.contains_key("pagepool_alloc_fast_total"), "the format of the node exporter: {first}");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o644);
    let mut child = command(&run.folder, &["export", "--textfile", to, "--every", "1"]).spawn().expect("it");
    let start = Instant::now();
    while received(&read(&fs::read_to_string(&path).expect("it is always there"))) <= received(&metrics) {
        assert!(start.elapsed() < LIMIT, "it is not written again");
        std::thread::sleep(Duration::from_millis(5));
    }
    interrupt(&mut child);
    let names = fs::read_dir(run.folder.path()).expect("a folder").flatten().map(|entry| entry.file_name());
    let names: BTreeSet<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(names, BTreeSet::from(["pagepool.prom".to_owned(), "run".to_owned()]));
    let there = format!("{}/no/x.prom", run.folder.path().display());
    let failed = command(&run.folder, &["export", "--textfile", &there]).output().expect("the binary");
    assert!(!failed.status.success() && text(&failed.stderr).contains("cannot write"), "{failed:?}");
}

fn received(metrics: &BTreeMap<String, Metric>) -> f64 {
    metrics["pagepool_nic_rx_packets_total"].series.values().sum()
}

pub fn interrupt(child: &mut Child) {
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("a kill");
    assert!(child.wait().expect("a child").success());
}

#[test]
fn an_exporter_outlives_what_keeps_its_file_from_being_written() {
    let run = Run::new();
    let folder = run.folder.path().join("textfiles");
    fs::create_dir(&folder).expect("a new folder");
    let (path, away) = (folder.join("pagepool.prom"), run.folder.path().join("away"));
    let to = path.to_str().expect("text");
    let mut child = command(&run.folder, &["export", "--textfile", to, "--every", "1"]).spawn().expect("it");
    let said = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = said.lines().map_while(Result::ok);
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < LIMIT, "the first one is not written");
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..2 {
        fs::rename(&folder, &away).expect("it is there");
        let warning = said.next().expect("it runs");
        assert!(warning.contains("warning: cannot write ") && warning.contains("next try"), "{warning}");
        fs::rename(&away, &folder).expect("it is there");
        let note = said.next().expect("it runs");
        assert!(note.ends_with("pagepool.prom is written again"), "{note}");
    }
    interrupt(&mut child);
    for (there, why) in [("/dev/null", "is not a regular file"), ("/nowhere/x.prom", "No such file")] {
        let arguments = ["export", "--textfile", there, "--every", "1"];
        let failed = command(&run.folder, &arguments).output().expect("the binary");
        assert!(!failed.status.success() && text(&failed.stderr).contains(why), "{failed:?}");
    }
}

/// The names of metrics that stand in a text as PromQL has them.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("pagepool_")).map(str::to_owned).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    let mut there: BTreeSet<String> = BTreeSet::new();
    let counters = |prefix: &str, names: &[&str]| {
        names.iter().map(|name| format!("pagepool_{prefix}{name}_total")).collect::<Vec<_>>()
    };
    there.extend(counters("", Stats::NAMES));
    there.extend(counters("deferred_", DeferredStats::NAMES));
    for kind in ["socket_", "nic_"] {
        there.extend(counters(kind, DeviceStats::NAMES));
        there.extend(counters(kind, KernelStats::NAMES));
        there.extend(["in_rx", "in_tx"].map(|name| format!("pagepool_{kind}{name}")));
    }
    there.extend(counters("port_", ForwardStats::NAMES));
    let gauges = ["pages", "inflight", "inflight_bytes", "detach_time_seconds", "process_alive"];
    there.extend(gauges.map(|name| format!("pagepool_{name}")));
    there.insert(OF_THE_FOLDER.into());
    for file in ["dashboards/pagepool.json", "dashboards/alerts.yml"] {
        let text = fs::read_to_string(Path::new(DOCS).join(file)).expect("a document");
        let unknown: Vec<_> = named(&text).difference(&there).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let dashboard = fs::read_to_string(Path::new(DOCS).join("dashboards/pagepool.json")).expect("it");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.iter().all(|panel| panel["targets"].as_array().is_some_and(|all| !all.is_empty())));
    promtool(&["check", "rules", &format!("{DOCS}/dashboards/alerts.yml")], None);
    let folder = TempFolder::new("dashboard").expect("a folder of ours");
    let rules = folder.path().join("rules.yml");
    fs::write(&rules, as_rules(panels).to_string()).expect("the folder is ours");
    promtool(&["check", "rules", &rules.to_string_lossy()], None);
}

/// The queries of a dashboard as rules of Prometheus, whose tool checks queries there alone.
fn as_rules(panels: &[Value]) -> Value {
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let rules: Vec<_> = targets
        .map(|target| target["expr"].as_str().expect("a query").replace("$__rate_interval", "1m"))
        .enumerate()
        .map(|(at, query)| json!({"record": format!("query_{at}"), "expr": query}))
        .collect();
    json!({"groups": [{"name": "dashboard", "rules": rules}]})
}

/// Has Prometheus's own tool check something, if it is there.
fn promtool(arguments: &[&str], input: Option<&str>) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return println!("SKIP promtool {}: this machine has none", arguments.join(" "));
    };
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.unwrap_or_default().as_bytes()).expect("it reads");
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("a child");
    assert!(status.success(), "{arguments:?}: {}{}", text(&stdout), text(&stderr));
}

#[test]
fn files_that_cannot_be_read_are_counted_in_either_format() {
    let folder = TempFolder::new("pagepool-unreadable").expect("a new folder");
    let (run, file) = (folder.path().join("run"), folder.path().join("metrics.prom"));
    fs::DirBuilder::new().mode(0o700).create(&run).expect("a new folder");
    let path = file.to_str().expect("a path of letters");
    for (count, bad) in [(0.0, None), (1.0, Some("bad.1.pagepool")), (2.0, Some("worse.2.pagepool"))] {
        bad.iter().for_each(|bad| fs::write(run.join(bad), [7; 5000]).expect("a new file"));
        let printed = command(&folder, &["export"]).output().expect("the binary");
        assert!(command(&folder, &["export", "--textfile", path]).output().expect("it").status.success());
        for of in [text(&printed.stdout), &fs::read_to_string(&file).expect("the file")] {
            let metrics = read(of);
            let metric = &metrics[OF_THE_FOLDER];
            assert_eq!(
                (&*metric.kind, metric.series.values().copied().sum::<f64>()),
                ("gauge", count),
                "{of}"
            );
        }
    }
}
