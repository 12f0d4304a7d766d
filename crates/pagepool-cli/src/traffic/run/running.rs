//! Phase 4: packets are redirected to the threads, until something ends the run.

use std::time::{Duration, Instant};

use super::attached::{Attached, Record};
use super::ended::Ended;
use crate::engine::link_watch::{LinkWatch, SeenChanges};
use crate::engine::run_state::{RunEnd, Sample};
use crate::engine::watch::Watch;
use crate::traffic::capture::Capture;
use crate::traffic::command::TrafficCommand;
use crate::traffic::live_figures::LiveFigures;
use crate::traffic::service_status::ServiceStatus;
use crate::traffic::summary::TrafficResult;

/// Seconds between two prints of figures.
const STATS_EVERY: u64 = 1;

pub struct Running<'a, C: TrafficCommand> {
    pub attached: Attached<'a, C>,
    /// The counts before the first packet.
    pub warm: Sample,
    pub start: Instant,
}

struct Watched {
    end: RunEnd,
    links: SeenChanges,
    seconds: f64,
}

impl<C: TrafficCommand> Running<'_, C> {
    /// Shows figures until the run ends. Then closes everything and restores the interfaces.
    pub fn watch(self) -> Result<Ended, String> {
        let Attached { record: Record { interfaces, names, .. }, plan, .. } = &self.attached;
        let mut figures = LiveFigures::begin(plan, interfaces, self.warm.clone(), names.clone());
        let Watched { end, links, seconds } = self.until_end(&mut figures)?;
        let Self { attached: Attached { threads, mut changes, capture, record, plan, mut site }, warm, .. } =
            self;
        let (now, tally) = threads.finish(plan.expected_frames)?;
        let warned = changes.offloads.warned(&mut site.kernel);
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
        Ok(Ended { result, pools, figures, published })
    }

    fn until_end(&self, figures: &mut LiveFigures) -> Result<Watched, String> {
        let Attached { threads, plan, site, .. } = &self.attached;
        let options = plan.options;
        let mut service = ServiceStatus::ready(plan, &self.warm);
        let watch = Watch {
            start: self.start,
            limit: options.seconds.map(Duration::from_secs),
            every: options.figures.every(STATS_EVERY),
            signals: &site.signals,
        };
        let show = |at, why| figures.show(why, at, threads.sample());
        let mut links = LinkWatch::new(site.links().collect(), threads.redirects(), plan.tx_mode.is_some())?;
        let look = |at| {
            service.look(at, threads.state());
            links.look(at, threads.state());
        };
        let end = watch.run(threads.state(), || false, show, look);
        let links = links.changes(threads.state());
        service.stopping();
        Ok(Watched { end, links, seconds: self.start.elapsed().as_secs_f64() })
    }
}
