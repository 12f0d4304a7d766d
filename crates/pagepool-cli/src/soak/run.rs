//! Runs the forwarding loop under the faults.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagepool::Pool;

use super::fault_injector::FaultInjector;
use super::schedule::Schedule;
use super::verdict::{Seen, Verdict};
use crate::demo::course::{Course, Phase};
use crate::demo::forwarding::Middle;
use crate::demo::plan::DemoAction;
use crate::demo::veth::{self, Between, Stage};

/// Of the links.
const MTU: u32 = 1500;

/// Runs it, prints lines meanwhile if it is to, and judges.
pub fn soak(schedule: &Schedule, lines: bool, interrupted: &AtomicBool) -> Result<Verdict, String> {
    let stage = Stage::new(MTU, None).map_err(|why| format!("soak runs over real interfaces only: {why}"))?;
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
    let mut injector = FaultInjector::new(&hosts, &course, warm, schedule, lines)?;
    course.move_to(Phase::Traffic);
    let injected = injector.run(interrupted).and_then(|()| injector.quiet());
    course.move_to(Phase::Draining);
    forwarding.join().map_err(|_| "the forwarding thread panicked".to_owned())?;
    injected?;
    let found = injector.end()?;
    Ok(Verdict::of(&Seen { mode, found, warm, end: course.sample() }, &homes))
}
