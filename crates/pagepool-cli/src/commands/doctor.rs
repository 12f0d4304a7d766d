//! `pagepool doctor`: looks for some seconds, and reports what is slow, lost or leaking, why, and how to fix
//! it.

use std::process::ExitCode;

use clap::Args;

use crate::doctor::report;
use crate::doctor::rule::diagnose;
use crate::doctor::rules::RULES;
use crate::doctor::sources::collect;
use crate::observing::look::folder;
use crate::report::exit_status;
use crate::report::json::print_json;
use crate::report::number::count_of;
use crate::report::output;
use crate::run_command::RunCommand;

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

impl RunCommand for DoctorArgs {
    fn run(&self) -> Result<ExitCode, String> {
        if self.rules {
            output::whole(&report::table(RULES));
            return Ok(ExitCode::SUCCESS);
        }
        let evidence = collect(&folder()?, self.of.as_deref(), self.seconds)?;
        let found = diagnose(RULES, &evidence);
        match self.json {
            true => print_json(&report::json(&found, &evidence)),
            false => report::print(&found, &evidence),
        }
        Ok(match evidence.unseen.not_judged.is_empty() {
            _ if !found.is_empty() => exit_status::FOUND.into(),
            true => ExitCode::SUCCESS,
            false => exit_status::NOT_JUDGED.into(),
        })
    }
}
