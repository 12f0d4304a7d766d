//! Phase 5: everything is closed and restored. Only the verdict is left.

use std::process::ExitCode;
use std::time::Duration;

use super::attached::Attached;
use super::running::Running;
use crate::traffic::capture::Capture;
use crate::traffic::command::TrafficCommand;
use crate::traffic::run::live_figures::LiveFigures;
use crate::traffic::run::summary::TrafficResult;

pub struct Ended {
    result: TrafficResult,
    figures: LiveFigures,
}

impl Ended {
    /// Waits for the end of the run. Then closes everything and restores the interfaces.
    pub fn wait<C: TrafficCommand>(mut running: Running<'_, C>) -> Result<Self, String> {
        let Attached { record, plan, .. } = &running.attached;
        let mut figures = LiveFigures::begin(plan, record, running.warm.clone());
        let watched = running.watch(&mut figures)?;
        let Running { attached, warm, .. } = running;
        let Attached { threads, mut changes, capture, record, plan, mut environment } = attached;
        let (now, tally) = threads.finish(plan.expected_frames)?;
        let warned = changes.offloads.warned(&mut environment.kernel);
        drop(changes);
        let capture = capture.map(Capture::finish).transpose()?;
        let (command, limit) = (plan.name, plan.options.limit);
        let result = TrafficResult { command, limit, record, watched, warned, warm, now, tally, capture };
        Ok(Self { result, figures })
    }

    pub fn print(self) -> ExitCode {
        let Self { result, figures } = self;
        let verdict = result.verdict();
        figures.end(Duration::from_secs_f64(result.watched.seconds), result.now, &verdict)
    }
}
