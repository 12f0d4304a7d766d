//! Runs the forwarding loop under the faults.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::fault_injector::FaultInjector;
use super::outcome::SoakResult;
use super::schedule::Schedule;
use crate::demo::veth::{self, VethSetup};
use crate::engine::run_state::{Phase, RunState};
use crate::report::verdict::Verdict;

/// MTU of the links.
const MTU: u32 = 1500;

/// Runs a soak and judges. `lines`: prints figures meanwhile.
pub fn soak(schedule: &Schedule, lines: bool, interrupted: &AtomicBool) -> Result<Verdict, String> {
    let setup = VethSetup::new(MTU, None).map_err(|why| format!("soak requires AF_XDP over veth: {why}"))?;
    let (mode, VethSetup { task, hosts }) = (setup.mode(), setup);
    let homes = task.homes();
    let state = Arc::new(RunState::new(1));
    let forwarding = veth::start(task, &state, &hosts)?;
    let warm = state.sample();
    let mut injector = FaultInjector::new(&hosts, &state, warm.clone(), schedule, lines)?;
    state.move_to(Phase::Traffic);
    let injected = injector.run(interrupted).and_then(|()| injector.quiet());
    state.move_to(Phase::Draining);
    forwarding.join().map_err(|_| "the forwarding thread panicked".to_owned())?;
    injected?;
    let faults = injector.end()?;
    Ok(SoakResult { mode, faults, warm: warm.ports, end: state.sample().ports }.verdict(&homes))
}
