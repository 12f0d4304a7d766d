//! Which figures a run prints, when and in which form: the options of every command that runs for a while.

use std::fmt::Display;
use std::time::Duration;

use clap::Args;

use super::live_table::LiveLine;
use super::output;

/// Which figures are printed, when, and in which form.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FigureOptions {
    /// Print one JSON object at the end on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// Print JSON lines: what runs, an object every --stats-every seconds, and one with the verdict
    ///
    /// Each object is one line, written at once; standard output has nothing else. Its key `line` is first,
    /// period, asked (by SIGUSR1) or last. For each interface and queue it has totals, the counts since the
    /// line before, and their rates per second; docs/commands-output.md has all keys.
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
    /// Print figures every SECONDS; 0 prints none [default: 1; soak: 5]
    ///
    /// With --json the default is 0, and figures go to standard error. SIGUSR1 prints them at once, whatever
    /// this option says.
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    stats_every: Option<u64>,
}

/// For whom a run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines for people.
    People,
    /// One JSON object at the end.
    Json,
    /// JSON objects all the time.
    JsonLines,
}

impl FigureOptions {
    /// For whom it prints.
    pub fn form(&self) -> OutputForm {
        match self {
            Self { json: true, .. } => OutputForm::Json,
            Self { json_lines: true, .. } => OutputForm::JsonLines,
            _ => OutputForm::People,
        }
    }

    /// Whether nothing but JSON objects may be on standard output.
    pub fn is_json(&self) -> bool {
        self.form() != OutputForm::People
    }

    /// The time between two prints of figures, if there are any; `usual`: in seconds, if none is asked for.
    pub fn every(&self, usual: u64) -> Option<Duration> {
        let default = if self.form() == OutputForm::Json { 0 } else { usual };
        let seconds = self.stats_every.unwrap_or(default);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Prints something for people: beside JSON only if --stats-every is given, and then on standard error.
    pub fn print(&self, text: &dyn Display) {
        match (self.form(), self.stats_every) {
            (OutputForm::People, _) => output::line(text),
            (OutputForm::Json, Some(_)) => output::aside(text),
            (OutputForm::Json, None) | (OutputForm::JsonLines, _) => {}
        }
    }

    /// Prints a row of figures that are due or asked for.
    pub fn row(&self, text: &dyn Display) {
        match self.form() {
            OutputForm::People => output::line(text),
            OutputForm::Json => output::aside(text),
            OutputForm::JsonLines => {}
        }
    }

    /// Shows a block of figures that are due or asked for.
    pub fn show(&self, lines: &[LiveLine]) {
        match self.form() {
            OutputForm::People => output::live(lines),
            OutputForm::Json => {
                let lines: Vec<_> = lines.iter().map(|line| &*line.text).collect();
                output::aside(lines.join("\n       "));
            }
            OutputForm::JsonLines => {}
        }
    }
}

/// Reads `--stats-every`.
fn interval(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0..=3600).contains(seconds));
    seconds.ok_or_else(|| "the interval is 1 to 3600 whole seconds; 0 prints no figures".into())
}
