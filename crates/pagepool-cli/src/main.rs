//! The pagepool command.

mod bench;
mod clock;
mod count;
mod counted;
mod machine;
mod measure;
mod outcome;
mod perf;
mod spsc;
mod summary;
mod sys;
mod workload;
mod workloads;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::bench::Choice;
use crate::workload::Plan;

/// A user-space page pool for packet buffers.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure the pool beside the machine's own yardsticks, and prove by counters which path was taken.
    Bench(Bench),
}

#[derive(Args)]
struct Bench {
    #[command(subcommand)]
    report: Option<Report>,
    /// One JSON object instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Only workloads with this word in their name.
    #[arg(long, value_name = "WORD")]
    filter: Option<String>,
    /// Fewer buffers and 9 repeats: figures that are good for a look only.
    #[arg(long, global = true)]
    quick: bool,
    /// Name the workloads and what one iteration of each is, and run none.
    #[arg(long)]
    list: bool,
}

#[derive(Subcommand)]
enum Report {
    /// Run exactly so many buffers of one workload without a clock, under an instruction counter.
    #[command(hide = true)]
    Count {
        /// The workload.
        name: String,
        /// Buffers, a multiple of 1024.
        iterations: usize,
    },
}

fn main() -> ExitCode {
    let Task::Bench(bench) = Command::parse().task;
    let plan = if bench.quick { Plan::QUICK } else { Plan::FULL };
    match bench.report {
        None if bench.list => list(),
        None => bench::run(&Choice { json: bench.json, filter: bench.filter, plan }, workloads::all()),
        Some(Report::Count { name, iterations }) => count(&name, iterations),
    }
}

fn list() -> ExitCode {
    for workload in workloads::all() {
        println!("{:<28} {:<22} {}", workload.name, workload.linux, workload.about);
    }
    ExitCode::SUCCESS
}

fn count(name: &str, iterations: usize) -> ExitCode {
    let found = workloads::all().find(|workload| workload.name == name);
    let done = found.ok_or_else(|| format!("no workload is called {name}; bench --list names them all"));
    match done.and_then(|workload| count::run(workload, iterations)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
