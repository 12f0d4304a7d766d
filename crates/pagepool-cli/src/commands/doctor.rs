//! `pagepool doctor`: looks for some seconds, and reports what is slow, lost or leaking, why, and how to fix
//! it.

mod report;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pagepool_watch::RunFolder;
use pagepool_watch::doctor::{DoctorReport, Examination, RULES};

use crate::command::Command;
use crate::observing::look::folder;
use crate::report::{count_of, exit_status, output, print_json};
use crate::signals;

/// The long help.
pub const ABOUT: &str = "\
Find what is slow, lost or leaking: what was seen, why it costs, how to fix it, how to verify the fix

For some seconds it looks at what processes publish (`pagepool list`), at the kernel's page pools, and at \
interfaces, interrupts, CPUs, nodes and offloads. It judges counters by how much they rose in that time. It \
prints the worst finding first. It changes nothing. docs/doctor.md has the rules.";

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The name or PID of a process [default: all]
    #[arg(value_name = "PROCESS")]
    of: Option<String>,
    /// Seconds between the first and the last look
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count_of::<u64>("seconds", 1..=3600))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the table of rules (Markdown), and do nothing else
    #[arg(long, conflicts_with_all = ["of", "seconds", "json"])]
    rules: bool,
}

impl Command for DoctorArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        if self.rules {
            output::text(&report::table(RULES));
            return Ok(ExitCode::SUCCESS);
        }
        let report = examine(&folder()?, self.of.as_deref(), Duration::from_secs(self.seconds))?;
        match self.json {
            true => print_json(&report::json(&report)),
            false => report::print(&report),
        }
        Ok(match report.not_judged.is_empty() {
            _ if !report.found.is_empty() => exit_status::FOUND.into(),
            true => ExitCode::SUCCESS,
            false => exit_status::NOT_JUDGED.into(),
        })
    }
}

/// Examines all processes of a folder, or those with a name or PID. Fails if there are none, or a signal ends
/// it.
fn examine(folder: &RunFolder, of: Option<&str>, time: Duration) -> Result<DoctorReport, String> {
    let signals = signals::install()?;
    let mut examination = Examination::begin(folder, of, time).map_err(|none| none.to_string())?;
    if let Some((pools, left)) = examination.being_filled() {
        let are = if pools == 1 { "1 pool is".to_owned() } else { format!("{pools} pools are") };
        let seconds = left.as_millis().div_ceil(1000);
        output::note(format_args!("{are} still being filled: the first look is in {seconds} s"));
    }
    while let Some(due) = examination.next_look() {
        if signals.end_before(due) {
            return Err("interrupted before the last look".into());
        }
        examination.look().map_err(|none| none.to_string())?;
    }
    Ok(examination.report())
}
