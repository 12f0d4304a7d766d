//! Phase 5: everything is closed and restored. Only the verdict is left.

use std::process::ExitCode;
use std::time::Duration;

use pagepool::{PoolRef, Publication};

use crate::traffic::live_figures::LiveFigures;
use crate::traffic::summary::TrafficResult;

pub struct Ended {
    pub result: TrafficResult,
    pub pools: Vec<PoolRef>,
    pub figures: LiveFigures,
    /// Other processes see the pools until the verdict is printed.
    pub published: Option<Publication>,
}

impl Ended {
    pub fn print(self) -> ExitCode {
        let Self { result, pools, figures, published } = self;
        let (seconds, verdict) = (Duration::from_secs_f64(result.seconds), result.verdict(&pools));
        let status = figures.end(seconds, result.now, &verdict);
        drop(published);
        status
    }
}
