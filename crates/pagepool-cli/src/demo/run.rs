//! Runs a demonstration where it takes place.

use super::live::View;
use super::place::Place;
use super::verdict::Verdict;
use super::{memory, veth};
use crate::sys;

/// Runs it, and judges.
pub fn demonstrate(place: Place, view: &View<'_>) -> Result<Verdict, String> {
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
