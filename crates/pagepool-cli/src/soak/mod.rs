//! `pagepool soak`: the forwarder at full load for minutes, while everything around it fails.
//!
//! ```text
//!   peer process  far0 ======= near0  forwarding loop  near1 ======= far1  peer process
//! ```
//!
//! What   both peers send numbered frames as fast as they can, and check what comes. One of the four ends of the links goes
//!        down and up again, in turns; one of the peers is killed and started again, in turns.
//! Proof  every frame is accounted for by what is in it: it arrived as it was sent, or it is known on which part of its way
//!        it was lost. What may not be: a damaged or repeated one, one lost within the forwarder, a call to the arena, a
//!        buffer that stays away, memory or descriptors that grow, traffic that does not come back soon.
//! Who    the conductor's thread works on links and peers, the forwarding loop has its own, peers are processes of ours that
//!        end with this one. Nothing outlives it.

mod arrivals;
mod conductor;
mod counts;
mod flow;
mod live;
pub mod peer;
mod process;
mod processes;
mod verdict;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use pagepool::Pool;

use crate::bench::print_json;
use crate::demo::course::{Course, Phase};
use crate::demo::forwarding::Middle;
use crate::demo::plan::DemoAction;
use crate::demo::veth::{self, Between, Stage};
use conductor::Conductor;
use verdict::{Seen, Verdict};

/// Of the links.
const MTU: u32 = 1500;

/// How long, and how often what fails.
#[derive(Args, Clone, Copy, Debug)]
pub struct Choice {
    /// How long the peers send. Ctrl-C ends it earlier, with the verdict
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(5..=604_800))]
    seconds: u64,
    /// Seconds from one time that an interface goes down, for a second, to the next
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(3..=3600))]
    flap_every: u64,
    /// Seconds from one time that a peer process is killed, and started again, to the next
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    kill_every: u64,
    /// One JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs it and prints the verdict; the status says whether all is well.
pub fn run(choice: &Choice) -> Result<ExitCode, String> {
    let interrupted = crate::interrupt::listen()?;
    let stage = Stage::new(MTU, None).map_err(|why| format!("soak runs over real interfaces only: {why}"))?;
    let verdict = soak(stage, choice, &interrupted)?;
    if choice.json {
        print_json(&verdict);
    } else {
        println!("{verdict}");
    }
    Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn soak(stage: Stage, choice: &Choice, interrupted: &AtomicBool) -> Result<Verdict, String> {
    let Stage { between: Between { pools, nics, mode, pages, burst }, hosts, .. } = stage;
    let homes = pools.each_ref().map(Pool::handle);
    let [nic0, nic1] = nics;
    let middle = Middle {
        pools,
        pages: [pages; 2],
        nics: [Box::new(nic0), Box::new(nic1)],
        burst,
        program: DemoAction::Forward,
        consumer: None,
        arrived: |_| None,
    };
    let course = Arc::new(Course::new());
    let (forwarding, warm) = veth::start(middle, course.clone(), None, &hosts)?;
    let mut conductor = Conductor::new(&hosts, &course, warm, choice)?;
    course.move_to(Phase::Traffic);
    let conducted = conductor.conduct(interrupted).and_then(|()| conductor.quiet());
    course.move_to(Phase::Draining);
    forwarding.join().map_err(|_| "the forwarding thread panicked".to_owned())?;
    conducted?;
    let found = conductor.end()?;
    Ok(Verdict::of(&Seen { mode, found, warm, end: course.sample() }, &homes))
}
