//! Phase 4: packets are redirected to the threads, until something ends the run.

use std::time::{Duration, Instant};

use super::attached::Attached;
use super::back_end_watch::BackEndWatch;
use crate::traffic::command::TrafficCommand;
use crate::traffic::run::link_watch::{LinkChanges, LinkWatch};
use crate::traffic::run::live_figures::LiveFigures;
use crate::traffic::run::service_status::ServiceStatus;
use crate::traffic::{RunEnd, Sample, Watch};

/// Seconds between two prints of figures.
const STATS_EVERY: u64 = 1;

pub struct Running<'a, C: TrafficCommand> {
    pub attached: Attached<'a, C>,
    /// The counts before the first packet.
    pub warm: Sample,
    start: Instant,
}

/// Why and when the run ended.
pub struct Watched {
    pub end: RunEnd,
    pub links: LinkChanges,
    pub seconds: f64,
}

impl<'a, C: TrafficCommand> Running<'a, C> {
    /// Redirects the packets of all interfaces at once.
    pub fn start(attached: Attached<'a, C>) -> Result<Self, String> {
        let (warm, start) = (attached.threads.state.sample(), Instant::now());
        attached.threads.redirect()?;
        Ok(Self { attached, warm, start })
    }

    /// Shows figures until the run ends.
    pub fn watch(&mut self, figures: &mut LiveFigures) -> Result<Watched, String> {
        let Attached { threads, changes, record, plan, environment, .. } = &mut self.attached;
        let options = plan.options;
        let mut service = ServiceStatus::ready(plan, &self.warm);
        let watch = Watch {
            start: self.start,
            limit: options.seconds.map(Duration::from_secs),
            every: options.figures.every(STATS_EVERY),
            signals: &environment.signals,
        };
        let show = |at, trigger| figures.show(trigger, at, threads.state.sample());
        let mut links = LinkWatch::new(&environment.interfaces, &threads.redirects, plan.tx_mode.is_some())?;
        let mut back_ends = BackEndWatch::new(&record.interfaces, &record.names, &self.warm.ports);
        let look = |at| {
            back_ends.look(at, &threads.state);
            service.look(at, &threads.state);
            links.look(at, &threads.state);
            changes.offloads.look(at);
        };
        let end = watch.wait(&threads.state, || false, show, look);
        let links = links.changes(&threads.state);
        service.stopping();
        Ok(Watched { end, links, seconds: self.start.elapsed().as_secs_f64() })
    }
}
