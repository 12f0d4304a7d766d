//! How observations are printed: once or repeatedly, for people or as JSON.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use pagepool_link::LinkError;
use pagepool_watch::{KernelLook, KernelWatch, Observation};
use serde::Serialize;

use super::look::folder;
use crate::report::{LiveLine, Terminal, error_chain, json_line, output, print_json};
use crate::signals::{self, Signals};

/// The time between two checks for the end of the command.
const NAP: Duration = Duration::from_millis(20);

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
    #[arg(value_parser = seconds)]
    watch: Option<u64>,
}

/// What a look shows: lines for people, and JSON.
pub trait Shown {
    /// `before`: the previous look, from the second look on.
    fn lines(
        &self,
        look: &Observation,
        before: Option<&Observation>,
        terminal: Option<Terminal>,
    ) -> Vec<LiveLine>;
    fn json(&self, look: &Observation) -> serde_json::Value;
    /// An error if what the user named was not found.
    fn check(&self, look: &Observation) -> Result<(), String>;
}

pub trait ShownOfKernel {
    /// `before`: the previous look, from the second look on.
    fn lines(&self, look: &KernelLook, before: Option<&KernelLook>) -> Vec<LiveLine>;
    fn json(&self, look: &KernelLook) -> serde_json::Value;
}

impl ObserveOptions {
    /// Shows a look, once or until a signal ends the command. `Ok(false)`: a file could not be read.
    pub fn show(&self, shown: &impl Shown) -> Result<bool, String> {
        let folder = folder()?;
        let mut look = Observation::at(&folder);
        shown.check(&look)?;
        let Some(seconds) = self.watch else {
            self.show_once(shown, &look)?;
            return Ok(look.errors.is_empty());
        };
        let signals = signals::install()?;
        self.show_again(shown, &look, None)?;
        again_every(seconds, &signals, || {
            let before = std::mem::replace(&mut look, Observation::at(&folder));
            self.show_again(shown, &look, Some(&before))
        })?;
        Ok(look.errors.is_empty())
    }

    /// Shows the page pools of the kernel, once or until a signal ends the command.
    pub fn show_kernel(&self, shown: &impl ShownOfKernel) -> Result<(), String> {
        let said = |error: LinkError| error_chain(&error);
        let mut watch = KernelWatch::open().map_err(said)?;
        let mut look = watch.look().map_err(said)?;
        let Some(seconds) = self.watch else {
            match self.json {
                true => print_json(&shown.json(&look)),
                false => {
                    shown.lines(&look, None).iter().for_each(|line| output::hanging(&line.text, 8, None))
                }
            }
            return Ok(());
        };
        let show = |look: &KernelLook, before: Option<&KernelLook>| match self.json {
            true => print_line(&shown.json(look)),
            false => {
                print_block(&shown.lines(look, before), Terminal::of_output());
                Ok(())
            }
        };
        let signals = signals::install()?;
        show(&look, None)?;
        again_every(seconds, &signals, || {
            let before = std::mem::replace(&mut look, watch.look().map_err(said)?);
            show(&look, Some(&before))
        })
    }

    fn show_once(&self, shown: &impl Shown, look: &Observation) -> Result<(), String> {
        match self.json {
            true => print_json(&shown.json(look)),
            false => {
                let lines = shown.lines(look, None, Terminal::of_output());
                lines.iter().for_each(|line| output::hanging(&line.text, 4, line.colour));
                look.errors.iter().for_each(output::error);
            }
        }
        Ok(())
    }

    fn show_again(
        &self,
        shown: &impl Shown,
        look: &Observation,
        before: Option<&Observation>,
    ) -> Result<(), String> {
        if self.json {
            return print_line(&shown.json(look));
        }
        let terminal = Terminal::of_output();
        let mut lines = shown.lines(look, before, terminal);
        lines.extend(look.errors.iter().cloned().map(LiveLine::bad));
        print_block(&lines, terminal);
        Ok(())
    }
}

/// Calls `show` every `seconds`, the first time after these, until a signal ends the command.
fn again_every(
    seconds: u64,
    signals: &Signals,
    mut show: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let (start, mut next) = (Instant::now(), 1);
    while !signals.interrupted() && !output::failed() {
        if start.elapsed() < Duration::from_secs(seconds) * next {
            std::thread::sleep(NAP);
            continue;
        }
        next = (start.elapsed().as_secs() / seconds) as u32 + 1;
        show()?;
    }
    Ok(())
}

/// On a terminal, draws the lines over the previous ones; elsewhere prints them and an empty line.
fn print_block(lines: &[LiveLine], terminal: Option<Terminal>) {
    match terminal {
        Some(_) => output::live(lines),
        None => {
            lines.iter().for_each(|line| output::line(&line.text));
            output::line("");
        }
    }
}

/// The exit status: a failure if a file could not be read.
pub fn status(all_read: bool) -> ExitCode {
    if all_read { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_line(value: &impl Serialize) -> Result<(), String> {
    output::text(&json_line(value)?);
    Ok(())
}

fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    seconds.ok_or_else(|| "the interval is 1 to 3600 whole seconds".into())
}
