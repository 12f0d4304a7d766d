//! Watches a run: shows figures while it runs, and returns what ended it.

use std::time::{Duration, Instant};

use crate::report::output;
use crate::signals::Signals;
use crate::traffic::{RunEnd, SharedState};

/// How often the watch checks whether the run is to end.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The time between two displays is over.
    Timer,
    /// A signal requests figures.
    Request,
}

pub struct Watch<'a> {
    pub start: Instant,
    /// The run's time; without one it runs until it is interrupted.
    pub limit: Option<Duration>,
    /// The time between two displays of figures; `None`: only on request.
    pub every: Option<Duration>,
    pub signals: &'a Signals,
}

impl Watch<'_> {
    /// Waits until the time is over, the threads end, `is_over` says so, or the user ends the run. Calls
    /// `show` with the time since the start whenever figures are due or requested, and `look` every 20 ms.
    pub fn wait(
        &self,
        state: &SharedState,
        is_over: impl Fn() -> bool,
        mut show: impl FnMut(Duration, Trigger),
        mut look: impl FnMut(Duration),
    ) -> RunEnd {
        let mut shown = 1;
        loop {
            let at = self.start.elapsed();
            let is_requested = self.signals.take_request();
            if let Some(every) = self.every.filter(|every| at >= *every * shown) {
                show(at, Trigger::Timer);
                shown = (at.as_secs_f64() / every.as_secs_f64()) as u32 + 1;
            } else if is_requested {
                show(at, Trigger::Request);
            }
            look(at);
            let sent = || is_over().then_some(RunEnd::Sent);
            if let Some(end) = self.end(at).or_else(sent).or_else(|| state.end()) {
                return end;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What ends the run apart from its threads.
    fn end(&self, at: Duration) -> Option<RunEnd> {
        match (self.signals.interrupted(), output::failed()) {
            (true, _) => Some(RunEnd::Interrupted),
            (_, true) => Some(RunEnd::Output),
            _ => self.limit.is_some_and(|limit| at >= limit).then_some(RunEnd::Time),
        }
    }
}
