//! Bars of the bench as an SVG: the median of each workload, and those of other programs beside it.
//!
//! Written by hand: rectangles and texts, always the same bytes for the same figures. The libraries for plots
//! bring axes, fonts and colour maps that a list of bars does not use.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::peers::{self, PeerFigure};
use super::workloads;

/// Where a plot goes, and what stands beside our bars.
#[derive(Clone, Debug)]
pub struct Plot {
    file: PathBuf,
    peers: Vec<PeerFigure>,
}

/// What a plot shows of the JSON output.
#[derive(Deserialize)]
struct Figures {
    machine: MeasuredOn,
    results: Vec<Median>,
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
    /// `None` of a workload that did not run.
    ns_med: Option<f64>,
}

/// One bar.
struct Bar {
    /// Whose it is: 0 is the pool, further numbers are the peers in their order.
    series: usize,
    ns: f64,
}

/// The bars of one workload.
struct Row {
    workload: String,
    bars: Vec<Bar>,
}

const FILLS: &[&str] = &["#1f5fa8", "#d98324", "#5b8f3e", "#8b5a9f", "#a33b3b", "#777777"];
const BAR: usize = 14;
const GAP: usize = 10;
const LABELS: usize = 230;
const WIDTH: usize = 900;
const VALUES: usize = 60;
const HEAD: usize = 78;

impl Plot {
    /// Looks at the folder and reads the figures of other programs, so that what is wrong fails before
    /// anything is measured.
    pub fn new(file: &Path, peers: Option<&Path>) -> Result<Self, String> {
        let peers = peers.map(peers::read).transpose()?.unwrap_or_default();
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("--plot is {}, but {} is no folder", file.display(), folder.display()));
        }
        let known = |name: &str| workloads::all().any(|workload| workload.name == name);
        match peers.iter().find(|peer| !known(&peer.workload)) {
            Some(PeerFigure { workload, .. }) => Err(format!(
                "--peers names {workload}, which is no workload; `pagepool bench --list` lists them"
            )),
            None => Ok(Self { file: file.into(), peers }),
        }
    }

    /// Draws a JSON output that was printed before.
    pub fn draw_recorded(&self, results: &Path) -> Result<(), String> {
        let text = fs::read_to_string(results).map_err(|error| format!("{}: {error}", results.display()))?;
        let output = serde_json::from_str(&text).map_err(|error| error.to_string());
        output.and_then(|output| self.draw(output)).map_err(|why| format!("{}: {why}", results.display()))
    }

    /// Draws a JSON output.
    pub fn draw(&self, output: serde_json::Value) -> Result<(), String> {
        let figures = serde_json::from_value(output)
            .map_err(|error| format!("not the JSON output of `pagepool bench`: {error}"))?;
        let text = svg(&figures, &self.peers)?;
        fs::write(&self.file, text).map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

fn svg(figures: &Figures, peers: &[PeerFigure]) -> Result<String, String> {
    let names = peer_names(peers);
    let rows = rows(figures, peers, &names);
    let scale = Scale::over(&rows).ok_or("no workload has a time to draw")?;
    let bars: usize = rows.iter().map(|row| row.bars.len()).sum();
    let height = HEAD + bars * BAR + rows.len() * GAP + 10;
    let mut text = String::new();
    head(&mut text, figures, height);
    legend(&mut text, &names);
    grid(&mut text, &scale, height);
    let mut y = HEAD;
    for row in &rows {
        draw_row(&mut text, row, &scale, y);
        y += row.bars.len() * BAR + GAP;
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// The peers, each once, in the order of the file.
fn peer_names(peers: &[PeerFigure]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for peer in peers {
        if !names.contains(&&*peer.peer) {
            names.push(&peer.peer);
        }
    }
    names
}

/// The workloads that ran, in the order of the bench.
fn rows(figures: &Figures, peers: &[PeerFigure], names: &[&str]) -> Vec<Row> {
    let row = |own: &Median| {
        let beside = peers.iter().filter(|peer| peer.workload == own.name).map(|peer| Bar {
            series: 1 + names.iter().position(|name| *name == peer.peer).unwrap_or(0),
            ns: peer.ns_med,
        });
        let bars = std::iter::once(Bar { series: 0, ns: own.ns_med? }).chain(beside).collect();
        Some(Row { workload: own.name.clone(), bars })
    };
    figures.results.iter().filter_map(row).collect()
}

/// Powers of ten, from the left end to the right one.
struct Scale {
    from: i32,
    to: i32,
}

impl Scale {
    fn over(rows: &[Row]) -> Option<Self> {
        let logs =
            rows.iter().flat_map(|row| &row.bars).map(|bar| bar.ns).filter(|ns| *ns > 0.0).map(f64::log10);
        let (min, max) =
            logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), log| (min.min(log), max.max(log)));
        let from = min.is_finite().then(|| (min - 0.01).floor() as i32)?;
        Some(Self { from, to: (max.ceil() as i32).max(from + 1) })
    }

    fn x(&self, ns: f64) -> f64 {
        let width = (WIDTH - LABELS - VALUES) as f64;
        let part = (ns.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        LABELS as f64 + width * part.max(0.0)
    }
}

fn head(text: &mut String, figures: &Figures, height: usize) {
    let MeasuredOn { cpu, kernel, date } = &figures.machine;
    put(
        text,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"10\" y=\"20\" font-size=\"15\">Nanoseconds per buffer, median; shorter is better; \
             logarithmic</text>\n<text x=\"10\" y=\"38\" fill=\"#555555\">{}</text>\n",
            escaped(&format!("{date}, {cpu}, Linux {kernel}")),
        ),
    );
}

fn legend(text: &mut String, names: &[&str]) {
    let mut x = 10;
    for (series, name) in std::iter::once(&"pagepool").chain(names).enumerate() {
        let fill = FILLS[series % FILLS.len()];
        put(
            text,
            format_args!(
                "<rect x=\"{x}\" y=\"47\" width=\"10\" height=\"10\" fill=\"{fill}\" class=\"key\"/>\n"
            ),
        );
        put(text, format_args!("<text x=\"{}\" y=\"56\">{}</text>\n", x + 15, escaped(name)));
        x += 40 + 7 * name.chars().count();
    }
}

fn grid(text: &mut String, scale: &Scale, height: usize) {
    for power in scale.from..=scale.to {
        let ns = 10f64.powi(power);
        let x = scale.x(ns);
        let end = height - 8;
        put(
            text,
            format_args!(
                "<line x1=\"{x:.1}\" y1=\"{HEAD}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#dddddd\"/>\n"
            ),
        );
        put(
            text,
            format_args!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{ns}</text>\n",
                HEAD - 5
            ),
        );
    }
}

fn draw_row(text: &mut String, row: &Row, scale: &Scale, y: usize) {
    let (x, base) = (LABELS - 8, y + BAR - 3);
    let name = escaped(&row.workload);
    put(
        text,
        format_args!(
            "<g class=\"workload\">\n<text x=\"{x}\" y=\"{base}\" text-anchor=\"end\">{name}</text>\n"
        ),
    );
    for (i, bar) in row.bars.iter().enumerate() {
        let (top, end) = (y + i * BAR, scale.x(bar.ns));
        let (width, fill) = (end - LABELS as f64, FILLS[bar.series % FILLS.len()]);
        put(
            text,
            format_args!(
                "<rect x=\"{LABELS}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" \
                 fill=\"{fill}\" class=\"bar\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\">{}</text>\n",
                top + 1,
                BAR - 2,
                end + 5.0,
                top + BAR - 3,
                shown(bar.ns),
            ),
        );
    }
    text.push_str("</g>\n");
}

/// Two or three digits.
fn shown(ns: f64) -> String {
    match ns {
        ns if ns < 1.0 => format!("{ns:.2}"),
        ns if ns < 100.0 => format!("{ns:.1}"),
        ns => format!("{ns:.0}"),
    }
}

fn put(text: &mut String, more: std::fmt::Arguments) {
    // A string takes everything.
    let _ = text.write_fmt(more);
}

/// As XML takes it, which has no control characters, escaped or not.
fn escaped(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
