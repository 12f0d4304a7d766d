//! The pagepool command.

mod arguments;
mod bench;
mod clock;
mod count;
mod counted;
mod demo;
mod figures;
mod interrupt;
mod machine;
mod measure;
mod mpsc;
mod outcome;
mod page_frag;
mod perf;
mod pools;
mod reports;
mod sample;
mod soak;
mod socket_sizes;
mod spsc;
mod summary;
mod sys;
mod touch;
mod traffic;
mod workload;
mod workloads;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::bench::Choice;
use crate::machine::Machine;
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
    /// Forward packets between two kernels over AF_XDP, or between two in-memory NICs; show where the pages are, and say
    /// whether all came home.
    Demo(demo::Choice),
    /// Forward what comes to each of two interfaces out of the other one, over AF_XDP, without a copy of ours.
    Forward(traffic::Forward),
    /// Drop what comes to an interface: how fast packets can be received.
    Drop(traffic::Drop),
    /// Send what comes to an interface back to where it came from.
    Echo(traffic::Echo),
    /// Send frames out of an interface, of a size and at a rate, each with a number and a checksum.
    Gen(traffic::Generate),
    /// Forward at full load for minutes over AF_XDP, while interfaces go down and up and peers are killed; say whether every
    /// packet is accounted for, every buffer came home, and memory stayed as it was.
    Soak(soak::Choice),
    /// A peer of `soak`, which starts it.
    #[command(hide = true)]
    SoakPeer(soak::peer::Task),
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
    /// What a packet costs and wastes at MTU 1500, 4000, 8000 and 9000: pages, page_frag, hybrid.
    Mtu,
    /// Node-blind and node-aware refill on a made-up machine of two nodes, all counters side by side.
    Numa,
    /// 1 to N threads returning at the same time: lanes, a lock-free ring (a rival without a pool), the locked ring.
    Contention {
        /// The largest number of returning threads.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
        threads: u8,
    },
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
    sys::end_with_the_reader();
    let done = match Command::parse().task {
        Task::Demo(choice) => demo::run(&choice),
        Task::Forward(choice) => traffic::run(&choice),
        Task::Drop(choice) => traffic::run(&choice),
        Task::Echo(choice) => traffic::run(&choice),
        Task::Gen(choice) => traffic::run(&choice),
        Task::Soak(choice) => soak::run(&choice),
        Task::SoakPeer(task) => soak::peer::run(&task),
        Task::Bench(bench) => run_bench(bench),
    };
    done.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::FAILURE
    })
}

fn run_bench(bench: Bench) -> Result<ExitCode, String> {
    let Bench { report, json, filter, quick, list } = bench;
    let plan = if quick { Plan::QUICK } else { Plan::FULL };
    match report {
        None if list => Ok(name_all()),
        None => Ok(bench::run(&Choice { json, filter, plan }, workloads::all())),
        Some(Report::Mtu) => with_machine(|| reports::mtu::run(plan), json),
        Some(Report::Numa) => with_machine(|| reports::numa::run(plan), json),
        Some(Report::Contention { threads }) => {
            with_machine(|| reports::contention::run(plan, threads.into()), json)
        }
        // Not asked: measuring the clock takes a number of instructions that never repeats.
        Some(Report::Count { name, iterations }) => count(&name, iterations),
    }
}

/// Asks the machine, runs a report and prints both.
fn with_machine<R: Serialize>(
    report: impl FnOnce() -> Result<reports::Report<R>, String>,
    json: bool,
) -> Result<ExitCode, String> {
    let machine = Machine::ask();
    Ok(report()?.print(&machine, json))
}

fn name_all() -> ExitCode {
    for workload in workloads::all() {
        println!("{:<28} {:<22} {}", workload.name, workload.linux, workload.about);
    }
    ExitCode::SUCCESS
}

fn count(name: &str, iterations: usize) -> Result<ExitCode, String> {
    let found = workloads::all().find(|workload| workload.name == name);
    let workload =
        found.ok_or_else(|| format!("no workload is called {name}; bench --list names them all"))?;
    count::run(workload, iterations)?;
    Ok(ExitCode::SUCCESS)
}
