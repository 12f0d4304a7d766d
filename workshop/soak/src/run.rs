//! Runs the forwarding loop under the faults.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::fault_injector::{FaultInjector, FaultReport};
use crate::live::{SoakFigures, SoakSnapshot};
use crate::outcome::SoakResult;
use crate::schedule::Schedule;
use pagepool::Holders;
use pagepool_cli::demo::veth;
use pagepool_cli::demo::veth::VethSetup;
use pagepool_cli::report::{FigureOptions, LossLimit};
use pagepool_cli::signals::Signals;
use pagepool_cli::traffic::{Phase, Sample, SharedState};

const MTU: u32 = 1500;

pub fn soak(
    schedule: &Schedule,
    options: FigureOptions,
    holders: Holders,
    limit: LossLimit,
    signals: &Signals,
) -> Result<ExitCode, String> {
    let setup =
        VethSetup::new(MTU, None, holders).map_err(|why| format!("soak requires AF_XDP over veth: {why}"))?;
    let (mode, VethSetup { task, hosts }) = (setup.mode(), setup);
    let pools = task.pools();
    let state = Arc::new(SharedState::new(1));
    let forwarding = veth::start(task, &state, &hosts)?;
    let warm = state.sample();
    let mut injector = FaultInjector::new(&hosts, &state, schedule)?;
    let mut figures = SoakFigures::begin(options, warm.clone(), schedule, &mode);
    state.move_to(Phase::Traffic);
    let injected = injector.run(&mut figures, signals).and_then(|()| injector.quiet());
    state.move_to(Phase::Draining);
    forwarding.join().map_err(|_| "the forwarding thread panicked".to_owned())?;
    injected?;
    let faults = injector.end()?;
    let (sample, end) = (state.sample(), at_end(&faults));
    let result = SoakResult { mode, faults, warm: warm.ports, end: sample.ports.clone() };
    Ok(figures.end(SoakSnapshot { sample, ..end }, &result.verdict(&pools, limit)))
}

fn at_end(faults: &FaultReport) -> SoakSnapshot {
    let FaultReport { seconds, flaps, kills, peers, ref flow, .. } = *faults;
    let (at, sample) = (Duration::from_secs_f64(seconds), Sample::default());
    SoakSnapshot { at, sample, peers, flaps, kills, outage: flow.silence }
}
