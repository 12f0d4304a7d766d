//! Phase 5: everything is closed and restored. Only the verdict is left.

use std::process::ExitCode;
use std::time::Duration;

use pagepool::{PoolRef, Publication};

use super::attached::{Attached, Record};
use super::running::{Running, Watched};
use crate::traffic::capture::Capture;
use crate::traffic::command::TrafficCommand;
use crate::traffic::run::live_figures::LiveFigures;
use crate::traffic::run::summary::TrafficResult;

pub struct Ended {
    result: TrafficResult,
    pools: Vec<PoolRef>,
    figures: LiveFigures,
    /// Other processes see the pools until the verdict is printed.
    published: Option<Publication>,
}

impl Ended {
    /// Waits for the end of the run. Then closes everything and restores the interfaces.
    pub fn wait<C: TrafficCommand>(mut running: Running<'_, C>) -> Result<Self, String> {
        let Attached { record: Record { interfaces, names, .. }, plan, .. } = &running.attached;
        let mut figures = LiveFigures::begin(plan, interfaces, running.warm.clone(), names.clone());
        let Watched { end, links, seconds } = running.watch(&mut figures)?;
        let Running { attached, warm, .. } = running;
        let Attached { threads, mut changes, capture, record, plan, mut environment } = attached;
        let (now, tally) = threads.finish(plan.expected_frames)?;
        let warned = changes.offloads.warned(&mut environment.kernel);
        drop(changes);
        let capture = capture.map(Capture::finish).transpose()?;
        let Record { interfaces, names, pools, counts, published } = record;
        let (command, limit) = (plan.name, plan.options.limit);
        let result = TrafficResult {
            command,
            interfaces,
            names,
            warned,
            seconds,
            end,
            links,
            warm,
            now,
            tally,
            capture,
            limit,
            counts,
        };
        Ok(Self { result, pools, figures, published })
    }

    pub fn print(self) -> ExitCode {
        let Self { result, pools, figures, published } = self;
        let (seconds, verdict) = (Duration::from_secs_f64(result.seconds), result.verdict(&pools));
        let status = figures.end(seconds, result.now, &verdict);
        drop(published);
        status
    }
}
