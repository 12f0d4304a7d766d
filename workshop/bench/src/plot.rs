//! Draws the bench as bars in an SVG: the median of each workload, with those of other programs beside it.
//!
//! It writes rectangles and texts itself: equal figures give equal bytes, and a plotting library would bring
//! axes, fonts and colour maps that bars do not use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pagepool_cli::report::output;
use serde::Deserialize;

use super::peers::{self, PeerFigure};
use super::workloads;

#[derive(Clone, Debug)]
pub struct Plot {
    file: PathBuf,
    peers: Vec<PeerFigure>,
}

/// The parts of the JSON output that a plot shows.
#[derive(Deserialize)]
struct Figures {
    machine: MeasuredOn,
    results: Vec<Median>,
    /// What a time is per.
    #[serde(default = "buffer")]
    per: String,
}

fn buffer() -> String {
    "buffer".into()
}

#[derive(Deserialize)]
struct MeasuredOn {
    cpu: String,
    kernel: String,
    date: String,
}

#[derive(Deserialize)]
struct Median {
    name: String,
    /// `None` if it did not run.
    ns_med: Option<f64>,
}

struct Row<'a> {
    workload: &'a str,
    /// Each with the index of its program's name, and its nanoseconds.
    bars: Vec<(usize, f64)>,
}

const FILLS: &[&str] = &["#1f5fa8", "#d98324", "#5b8f3e", "#8b5a9f", "#a33b3b", "#777777"];
const BAR: usize = 14;
const GAP: usize = 10;
const LABELS: usize = 230;
const WIDTH: usize = 900;
const VALUES: usize = 60;
const HEAD: usize = 78;
const GREY: &str = " fill=\"#555555\"";

/// Draws an earlier JSON output.
pub fn draw_recorded(results: &Path, file: &Path, peers: Option<&Path>) -> Result<(), String> {
    let in_file = |why| format!("{}: {why}", results.display());
    let text = fs::read_to_string(results).map_err(|error| in_file(error.to_string()))?;
    let output = serde_json::from_str(&text).map_err(|error| in_file(error.to_string()))?;
    let figures = figures(output).map_err(in_file)?;
    let plot = Plot::new(file, peers, |name| figures.results.iter().any(|own| own.name == name))?;
    plot.draw_figures(&figures).map_err(in_file)
}

impl Plot {
    /// Checks folder and figures of other programs: errors come before the measurement. Each figure must name
    /// a workload of the bench, or one that is `known`.
    pub fn new(file: &Path, peers: Option<&Path>, known: impl Fn(&str) -> bool) -> Result<Self, String> {
        let peers = peers.map(peers::read).transpose()?.unwrap_or_default();
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("--plot is {}, but {} is not a folder", file.display(), folder.display()));
        }
        let known = |name: &str| known(name) || workloads::all().any(|workload| workload.name == name);
        match peers.iter().find(|peer| !known(&peer.workload)) {
            Some(PeerFigure { workload, .. }) => Err(format!(
                "--peers names {workload}, which is not a workload; `pagepool-bench --list` lists them"
            )),
            None => Ok(Self { file: file.into(), peers }),
        }
    }

    pub fn draw(&self, output: serde_json::Value) -> Result<(), String> {
        self.draw_figures(&figures(output)?)
    }

    /// Warns of peers' figures that have no bar of ours beside them.
    fn draw_figures(&self, figures: &Figures) -> Result<(), String> {
        let ran = |name: &str| figures.results.iter().any(|own| own.name == name && own.ns_med.is_some());
        let (drawn, left_out): (Vec<_>, Vec<_>) = self.peers.iter().partition(|peer| ran(&peer.workload));
        let names: BTreeSet<&str> = left_out.iter().map(|peer| &*peer.workload).collect();
        if !names.is_empty() {
            let names = Vec::from_iter(names).join(", ");
            let why = "the results have no time for them";
            output::warn(format_args!("not drawn from --peers, because {why}: {names}"));
        }
        let text = svg(figures, &drawn)?;
        fs::write(&self.file, text).map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

fn figures(output: serde_json::Value) -> Result<Figures, String> {
    serde_json::from_value(output)
        .map_err(|error| format!("not the JSON output of `pagepool-bench`: {error}"))
}

fn svg(figures: &Figures, peers: &[&PeerFigure]) -> Result<String, String> {
    let mut names = vec!["pagepool"];
    for peer in peers {
        if !names.contains(&&*peer.peer) {
            names.push(&peer.peer);
        }
    }
    let rows = rows(figures, peers, &names);
    let scale = Scale::over(&rows).ok_or("no workload has a time to draw")?;
    let bars: usize = rows.iter().map(|row| row.bars.len()).sum();
    let height = HEAD + bars * BAR + rows.len() * GAP + 10;
    let mut text = head(figures, height) + &legend(&names) + &grid(&scale, height);
    let mut y = HEAD;
    for row in &rows {
        text += &draw_row(row, &scale, y);
        y += row.bars.len() * BAR + GAP;
    }
    Ok(text + "</svg>\n")
}

/// The workloads that ran, in the order of the bench.
fn rows<'a>(figures: &'a Figures, peers: &[&PeerFigure], names: &[&str]) -> Vec<Row<'a>> {
    let series = |peer: &PeerFigure| names.iter().position(|name| *name == peer.peer);
    let row = |own: &'a Median| {
        let beside = peers.iter().filter(|peer| peer.workload == own.name);
        let beside = beside.filter_map(|peer| Some((series(peer)?, peer.ns_med)));
        Some(Row { workload: &own.name, bars: [(0, own.ns_med?)].into_iter().chain(beside).collect() })
    };
    figures.results.iter().filter_map(row).collect()
}

/// A scale from one power of ten to another.
struct Scale {
    from: i32,
    to: i32,
}

impl Scale {
    fn over(rows: &[Row]) -> Option<Self> {
        let bars = rows.iter().flat_map(|row| &row.bars).filter(|(_, ns)| *ns > 0.0);
        let logs: Vec<f64> = bars.map(|(_, ns)| ns.log10()).collect();
        let end = |of: fn(f64, f64) -> f64| logs.iter().copied().reduce(of);
        let from = (end(f64::min)? - 0.01).floor() as i32;
        Some(Self { from, to: (end(f64::max)?.ceil() as i32).max(from + 1) })
    }

    fn x(&self, ns: f64) -> f64 {
        let width = (WIDTH - LABELS - VALUES) as f64;
        let part = (ns.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        LABELS as f64 + width * part.max(0.0)
    }
}

fn head(figures: &Figures, height: usize) -> String {
    let Figures { machine: MeasuredOn { cpu, kernel, date }, per, .. } = figures;
    let title = format!("Nanoseconds per {per}, median; shorter is better; logarithmic");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    ) + &label(10.0, 20, " font-size=\"15\"", &title)
        + &label(10.0, 38, GREY, &format!("{date}, {cpu}, {kernel}"))
}

fn legend(names: &[&str]) -> String {
    let (mut text, mut x) = (String::new(), 10);
    for (series, name) in names.iter().enumerate() {
        text += &bar(x, 47, 10.0, 10, series, "key");
        text += &label((x + 15) as f64, 56, "", name);
        x += 40 + 7 * name.chars().count();
    }
    text
}

fn grid(scale: &Scale, height: usize) -> String {
    let line = |power| {
        let ns = 10f64.powi(power);
        let (x, end) = (scale.x(ns), height - 8);
        let line =
            format!("<line x1=\"{x:.1}\" y1=\"{HEAD}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#dddddd\"/>\n");
        line + &label(x, HEAD - 5, &format!(" text-anchor=\"middle\"{GREY}"), &ns.to_string())
    };
    (scale.from..=scale.to).map(line).collect()
}

fn draw_row(row: &Row, scale: &Scale, y: usize) -> String {
    let name = label((LABELS - 8) as f64, y + BAR - 3, " text-anchor=\"end\"", row.workload);
    let mut text = format!("<g class=\"workload\">\n{name}");
    for (i, &(series, ns)) in row.bars.iter().enumerate() {
        let (top, end) = (y + i * BAR, scale.x(ns));
        text += &bar(LABELS, top + 1, end - LABELS as f64, BAR - 2, series, "bar");
        text += &label(end + 5.0, top + BAR - 3, "", &shown(ns));
    }
    text + "</g>\n"
}

fn bar(x: usize, y: usize, width: f64, height: usize, series: usize, class: &str) -> String {
    let fill = FILLS[series % FILLS.len()];
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\" \
         class=\"{class}\"/>\n"
    )
}

fn label(x: f64, y: usize, style: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y}\"{style}>{}</text>\n", escaped(text))
}

/// Two or three digits.
fn shown(ns: f64) -> String {
    match ns {
        ns if ns < 1.0 => format!("{ns:.2}"),
        ns if ns < 100.0 => format!("{ns:.1}"),
        ns => format!("{ns:.0}"),
    }
}

/// XML allows no control characters.
fn escaped(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
