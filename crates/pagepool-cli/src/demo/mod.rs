//! `pagepool demo`: a packet forwarder in one process, and the proof that its pages go round.
//!
//! Over real interfaces where that can be done, `veth`: between two kernels' TCP. Else in `memory`, which runs anywhere.
//! Both have the same forwarding loop, figures and verdict. `pagepool soak` has the loop and the figures from here, too.

mod consumer;
mod content;
pub mod course;
pub mod forwarding;
mod live;
mod memory;
mod place;
pub mod plan;
mod verdict;
pub mod veth;
mod wire;

use std::process::ExitCode;

use clap::Args;

use crate::bench::print_json;
use crate::interrupt::listen;
use crate::sys;
use live::View;
use place::{On, Place};
use plan::DemoAction;
use verdict::Verdict;

/// What to show.
#[derive(Args, Clone, Debug)]
pub struct Choice {
    /// How long the source sends. Ctrl-C ends it earlier, with the verdict
    #[arg(long, value_name = "N", default_value = "5", value_parser = crate::arguments::seconds)]
    seconds: u64,
    /// Between which interfaces
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = On::Auto)]
    on: On,
    /// veth: largest packet of the links without its Ethernet header, 576 to 65535 [default: 1500]. What does not fit one
    /// page travels in several, which needs Linux 6.6
    #[arg(long, value_name = "BYTES", value_parser = plan::mtu)]
    mtu: Option<u32>,
    /// memory: length of each packet, 64 to 9000 [default: 64]. What does not fit one page travels in several
    #[arg(long, value_name = "BYTES", value_parser = plan::size)]
    size: Option<usize>,
    /// memory: what the forwarding loop does with each packet [default: forward, which is also what veth does]
    #[arg(long, value_name = "PROGRAM", value_enum)]
    program: Option<DemoAction>,
    /// One JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs it and prints the verdict; the status says whether all is well.
pub fn run(choice: &Choice) -> Result<ExitCode, String> {
    let place = place::choose(choice)?;
    let interrupted = listen()?;
    let view = View { seconds: choice.seconds, lines: !choice.json, interrupted: &interrupted };
    let verdict = demonstrate(place, &view)?;
    if choice.json {
        print_json(&verdict);
    } else {
        println!("{verdict}");
    }
    Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn demonstrate(place: Place, view: &View<'_>) -> Result<Verdict, String> {
    let task = match place {
        Place::Memory(task) => task,
        Place::Veth(mtu) => return veth::run(veth::Stage::new(mtu, sys::two_cpus())?, view),
        Place::VethElse(mtu, task) => match veth::Stage::new(mtu, sys::two_cpus()) {
            Ok(stage) => return veth::run(stage, view),
            Err(why) => {
                let line = format!("In memory only, for real interfaces would need what is not here: {why}");
                if view.lines {
                    println!("{line}")
                } else {
                    eprintln!("{line}")
                }
                task
            }
        },
    };
    memory::run(task, view)
}
