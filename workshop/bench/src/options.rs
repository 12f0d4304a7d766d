//! The options of `pagepool-bench`: the table of workloads, and reports.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::measure::machine::Machine;
use crate::measure::workload::Plan;
use crate::plot::Plot;
use crate::run::TableParams;
use crate::{count, plot, reports, run, workloads};
use clap::{Parser, Subcommand};
use pagepool::Publication;
use pagepool_cli::command::Command;
use pagepool_cli::file_name::file_name;
use pagepool_cli::report::{count_of, error_chain, output};
use serde::Serialize;
use signal_hook::{consts::SIGXCPU, flag};

/// Benchmark the page pool, and check with its counters that each workload took the intended path
#[derive(Parser)]
#[command(name = "pagepool-bench", version)]
pub struct BenchArgs {
    #[command(subcommand)]
    report: Option<BenchReport>,
    /// Print one JSON object instead of a table
    #[arg(long, global = true)]
    json: bool,
    /// Run only workloads whose name contains WORD
    #[arg(long, value_name = "WORD")]
    filter: Option<String>,
    /// Measure less, in seconds: fewer buffers, and 9 repetitions of each workload
    #[arg(long, global = true)]
    quick: bool,
    /// Publish the pools during the run. To see the cost, compare runs with and without it
    #[arg(long, conflicts_with_all = ["list", "results"])]
    publish: bool,
    /// List the workloads and what one iteration of each does
    #[arg(long)]
    list: bool,
    /// Draw the medians as a bar chart into FILE (SVG)
    #[arg(long, value_name = "FILE", conflicts_with = "list", value_parser = file_name())]
    plot: Option<PathBuf>,
    /// With --plot: also draw the figures of other programs, from FILE (CSV)
    ///
    /// The first line names the columns, in any order. `peer` is the name of the other program, `workload`
    /// the workload of --list or --results that it is compared with, `ns_med` its median in nanoseconds per
    /// buffer. Other columns, and lines that begin with #, are skipped. Workloads that did not run, for
    /// example because --filter excludes them, are not drawn; standard error names them.
    #[arg(long, value_name = "FILE", requires = "plot", value_parser = file_name())]
    peers: Option<PathBuf>,
    /// With --plot: draw the figures of FILE, the output of an earlier run with --json; run nothing
    #[arg(long, value_name = "FILE", requires = "plot", value_parser = file_name())]
    #[arg(conflicts_with_all = ["json", "filter", "quick", "list"])]
    results: Option<PathBuf>,
}

#[derive(Subcommand)]
enum BenchReport {
    /// CPU time and memory per packet at MTU 1500, 4000, 8000 and 9000: whole pages, Linux's page_frag, and
    /// fragments of order-3 pages
    Mtu,
    /// Refill with and without regard to the NUMA node, on a simulated machine with two nodes
    Numa,
    /// Returns from a second core, alternating with DPDK's mempool and packet buffers, if installed
    Across {
        /// How often each of the two runs each row; the table has the medians
        #[arg(long, default_value_t = 9, value_parser = count_of::<u8>("rounds", 1..=99))]
        rounds: u8,
    },
    /// Cost of a return from 1 to N threads at the same time: lanes, a lock-free ring, the locked ring
    Contention {
        /// The largest number of threads that return buffers
        #[arg(long, default_value_t = 4, value_parser = count_of::<u8>("threads", 1..=16))]
        threads: u8,
    },
    /// Cost of a return for a thread that returns to 1 to 1,024 pools: through lanes, through the ring while
    /// other threads hold all lanes, and through the ring of pools without lanes
    Pools,
    /// Run one workload without a clock, for an instruction counter
    #[command(hide = true)]
    Count {
        /// The workload
        name: String,
        /// Buffers, a multiple of 1024
        iterations: usize,
        /// Publish the pools
        #[arg(long)]
        publish: bool,
    },
}

/// A flag that is set when the limit on CPU time is reached. The limit no longer ends the process.
fn cpu_time_limit() -> Result<Arc<AtomicBool>, String> {
    let reached = Arc::default();
    let handled = flag::register(SIGXCPU, Arc::clone(&reached));
    handled.map(|_| reached).map_err(|error| format!("cannot handle SIGXCPU: {error}"))
}

impl Command for BenchArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        let Self { report, json, filter, quick, list, publish, .. } = self;
        let plan = if *quick { Plan::QUICK } else { Plan::FULL };
        match report {
            None if *list => Ok(name_all(filter.as_deref().unwrap_or_default())),
            None => {
                let [file, peers, results] = [&self.plot, &self.peers, &self.results].map(Option::as_deref);
                if let (Some(file), Some(results)) = (file, results) {
                    return plot::draw_recorded(results, file, peers).map(|()| ExitCode::SUCCESS);
                }
                let _published = publication(*publish)?;
                let plot = file.map(|file| Plot::new(file, peers, |_| false)).transpose()?;
                let (json, filter, end) = (*json, filter.clone(), cpu_time_limit()?);
                let params = TableParams { json, filter, plan, plot, end };
                Ok(run::run(&params, workloads::all()))
            }
            Some(_) if *list || *publish || filter.is_some() || self.plot.is_some() => Err(
                "--filter, --list, --publish and --plot apply to the table of workloads only: leave them \
                     out, or the report"
                    .into(),
            ),
            Some(BenchReport::Mtu) => with_machine(|| reports::mtu::run(plan), *json),
            Some(BenchReport::Numa) => with_machine(|| reports::numa::run(plan), *json),
            Some(BenchReport::Across { rounds }) => {
                with_machine(|| reports::across::run(plan, (*rounds).into()), *json)
            }
            Some(BenchReport::Pools) => with_machine(|| reports::pools::run(plan), *json),
            Some(BenchReport::Contention { threads }) => {
                with_machine(|| reports::contention::run(plan, (*threads).into()), *json)
            }
            // Without data of the machine: measuring its clock takes a number of instructions that never
            // repeats.
            Some(BenchReport::Count { name, iterations, publish }) => count_one(name, *iterations, *publish),
        }
    }
}

/// Reads the machine's data, runs a report and prints both.
fn with_machine<R: Serialize>(
    report: impl FnOnce() -> Result<reports::Report<R>, String>,
    json: bool,
) -> Result<ExitCode, String> {
    let machine = Machine::ask();
    Ok(report()?.print(&machine, json))
}

fn name_all(filter: &str) -> ExitCode {
    for workload in workloads::all().filter(|workload| workload.name.contains(filter)) {
        let (name, linux, about) = (workload.name, workload.linux, workload.about);
        output::line(format_args!("{name:<28} {linux:<22} {about}"));
    }
    ExitCode::SUCCESS
}

fn publication(publish: bool) -> Result<Option<Publication>, String> {
    publish.then(|| pagepool::publish("bench")).transpose().map_err(|error| error_chain(&error))
}

fn count_one(name: &str, iterations: usize, publish: bool) -> Result<ExitCode, String> {
    let _published = publication(publish)?;
    let found = workloads::all().find(|workload| workload.name == name);
    let workload =
        found.ok_or_else(|| format!("no workload is called {name}; `pagepool-bench --list` lists them"))?;
    count::run(workload, iterations)?;
    Ok(ExitCode::SUCCESS)
}
