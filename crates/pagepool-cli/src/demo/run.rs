//! Runs a demonstration in its place.

use super::live::View;
use super::place::DemoPlace;
use super::{memory, veth};
use crate::report::verdict::Verdict;
use crate::sys;

/// Runs it, and judges.
pub fn demonstrate(place: DemoPlace, view: &View<'_>) -> Result<Verdict, String> {
    let demo = match place {
        DemoPlace::Memory(demo) => demo,
        DemoPlace::Veth(mtu) => return veth::run(veth::VethSetup::new(mtu, sys::two_cpus())?, view),
        DemoPlace::VethElse(mtu, demo) => match veth::VethSetup::new(mtu, sys::two_cpus()) {
            Ok(setup) => return veth::run(setup, view),
            Err(why) => {
                let line = format!("Running in memory, because veth is not available: {why}");
                if view.lines {
                    println!("{line}")
                } else {
                    eprintln!("{line}")
                }
                demo
            }
        },
    };
    memory::run(demo, view)
}
