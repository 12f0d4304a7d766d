//! How observations are printed: once or repeatedly, for people or as JSON.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::report::{LiveLine, Terminal, in_range, output, print_json, print_json_line};
use crate::signals;

#[derive(Args, Clone, Copy, Debug)]
pub struct ObserveOptions {
    /// Print JSON; with --watch, one object per line
    #[arg(long)]
    pub json: bool,
    /// Look again every SECONDS, until Ctrl-C [default: 1]
    ///
    /// From the second look on, rates (recyc%, slow/s) are since the previous look. On a terminal each look
    /// is drawn over the previous one, and shows as much as fits.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    #[arg(value_parser = in_range(1..=3600_u64, "the interval is 1 to 3600 whole seconds"))]
    watch: Option<u64>,
}

/// A look, and where it is shown.
pub struct Looks<'a, L> {
    pub now: &'a L,
    /// The previous look, from the second look on.
    pub before: Option<&'a L>,
    pub terminal: Option<Terminal>,
}

/// What is looked at, as lines for people and as JSON.
pub trait Shown {
    type Look;
    /// The indent where a line is folded, in a single look.
    const INDENT: usize;

    fn look(&mut self) -> Result<Self::Look, String>;
    fn lines(&self, looks: Looks<'_, Self::Look>) -> Vec<LiveLine>;
    fn json(&self, look: &Self::Look) -> serde_json::Value;
    /// An error if what the user named was not found.
    fn check(&self, _: &Self::Look) -> Result<(), String> {
        Ok(())
    }
    /// Why parts could not be read.
    fn errors(_: &Self::Look) -> &[String] {
        &[]
    }
}

impl ObserveOptions {
    /// Shows a look, once or until a signal ends the command. The status is a failure if a part could not be
    /// read.
    pub fn show<S: Shown>(&self, mut shown: S) -> Result<ExitCode, String> {
        let mut look = shown.look()?;
        shown.check(&look)?;
        match self.watch {
            None => self.show_once(&shown, &look),
            Some(seconds) => {
                let signals = signals::install()?;
                self.show_again(&shown, &look, None);
                let (start, mut next) = (Instant::now(), 1);
                while !output::failed() && !signals.end_before(start + Duration::from_secs(seconds) * next) {
                    next = (start.elapsed().as_secs() / seconds) as u32 + 1;
                    let before = std::mem::replace(&mut look, shown.look()?);
                    self.show_again(&shown, &look, Some(&before));
                }
            }
        }
        Ok(if S::errors(&look).is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn show_once<S: Shown>(&self, shown: &S, look: &S::Look) {
        if self.json {
            return print_json(&shown.json(look));
        }
        let lines = shown.lines(Looks { now: look, before: None, terminal: Terminal::of_output() });
        lines.iter().for_each(|line| output::hanging(&line.text, S::INDENT, line.colour));
        S::errors(look).iter().for_each(output::error);
    }

    /// On a terminal, draws the lines over the previous ones; elsewhere prints them and an empty line.
    fn show_again<S: Shown>(&self, shown: &S, now: &S::Look, before: Option<&S::Look>) {
        if self.json {
            return print_json_line(&shown.json(now));
        }
        let terminal = Terminal::of_output();
        let mut lines = shown.lines(Looks { now, before, terminal });
        lines.extend(S::errors(now).iter().cloned().map(LiveLine::bad));
        match terminal {
            Some(_) => output::live(&lines),
            None => {
                lines.iter().for_each(|line| output::line(&line.text));
                output::line("");
            }
        }
    }
}
