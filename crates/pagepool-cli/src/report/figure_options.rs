//! Options of every command that runs for a while: which figures it prints, when and in which form.

use std::fmt::Display;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::live_line::LiveLine;
use super::number::in_range;
use super::option_groups::OUTPUT;
use super::output;

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FigureOptions {
    /// Print JSON: end (default) or lines
    ///
    /// On standard output. end: one object with the verdict, and nothing else. lines: an object that says
    /// what runs, one every --stats-every seconds, and one with the verdict. Each is one line, written at
    /// once. Its key `line` is first, period, asked (by SIGUSR1) or last. For each interface and queue it has
    /// totals, the counts since the line before, and their rates per second. docs/commands-output.md lists
    /// all keys.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "end", hide_possible_values = true, help_heading = OUTPUT)]
    pub json: Option<JsonForm>,
    /// Time between figures; 0: none [default: 1]
    ///
    /// With --json=end the default is 0, and figures go to standard error. SIGUSR1 prints the figures at
    /// once, even with 0.
    #[arg(long, value_name = "SECONDS", help_heading = OUTPUT)]
    #[arg(value_parser = in_range(0..=3600_u64, "the interval is 1 to 3600 whole seconds; 0 prints no \
         figures"))]
    stats_every: Option<u64>,
}

/// The values of `--json`. Without one, a run prints lines for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonForm {
    End,
    Lines,
}

impl FigureOptions {
    /// Whether standard output may have nothing but JSON objects.
    pub fn is_json(&self) -> bool {
        self.json.is_some()
    }

    /// The time between two prints of figures, or `None`. `usual`: the default, in seconds.
    pub fn every(&self, usual: u64) -> Option<Duration> {
        let default = if self.json == Some(JsonForm::End) { 0 } else { usual };
        let seconds = self.stats_every.unwrap_or(default);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Prints text for people. With --json=end it goes to standard error, and only if --stats-every is given.
    pub fn print(&self, text: &dyn Display) {
        if self.json.is_none() || self.stats_every.is_some() {
            self.row(text);
        }
    }

    /// Prints a row of figures: when it is due, or on SIGUSR1.
    pub fn row(&self, text: &dyn Display) {
        match self.json {
            None => output::line(text),
            Some(JsonForm::End) => output::beside_json(text),
            Some(JsonForm::Lines) => {}
        }
    }

    /// Shows a block of figures: when it is due, or on SIGUSR1.
    pub fn show(&self, lines: &[LiveLine]) {
        match self.json {
            None => output::live(lines),
            Some(JsonForm::End) => {
                let lines: Vec<_> = lines.iter().map(|line| &*line.text).collect();
                output::beside_json(lines.join("\n       "));
            }
            Some(JsonForm::Lines) => {}
        }
    }
}

/// Reads how long a run takes.
pub fn run_seconds(text: &str) -> Result<u64, String> {
    in_range(1..=86_400, "the run time is 1 to 86400 whole seconds; Ctrl-C stops earlier")(text)
}
