//! Reports the status of a command on interfaces to a service manager.

use std::time::Duration;

use crate::report::{ServiceManager, per_second};
use crate::traffic::command::TrafficPlan;
use crate::traffic::figures::losses;
use crate::traffic::{PortSample, Sample, SharedState, sum};

/// The service manager, and what was reported last.
pub struct ServiceStatus {
    manager: ServiceManager,
    /// The command and its interfaces.
    title: String,
    at: Duration,
    before: [u64; 3],
}

impl ServiceStatus {
    /// Reports that packets are redirected to the command.
    pub fn ready(plan: &TrafficPlan<'_>, warm: &Sample) -> Self {
        let title = format!("{} {}", plan.name, plan.interfaces.join(" "));
        let mut manager = ServiceManager::of_environment();
        manager.ready(&title);
        Self { manager, title, at: Duration::ZERO, before: moved(&warm.ports) }
    }

    pub fn look(&mut self, at: Duration, state: &SharedState) {
        let Self { manager, title, at: last, before } = self;
        manager.look(
            at,
            || {
                let published = state.published();
                state.wake_threads(); // a sleeping thread publishes, and is seen at the next look
                published
            },
            || {
                let now = moved(&state.sample().ports);
                let seconds = at.saturating_sub(*last).as_secs_f64().max(1e-9);
                let [received, sent, lost] =
                    [0, 1, 2].map(|at| per_second(now[at].saturating_sub(before[at]), seconds));
                let text = format!("{title}: in {received}/s, out {sent}/s, lost {lost}/s");
                (*last, *before) = (at, now);
                text
            },
        );
    }

    pub fn stopping(&mut self) {
        self.manager.stopping();
    }
}

/// Packets received, sent and lost.
fn moved(ports: &[PortSample]) -> [u64; 3] {
    [sum(ports, |at| at.nic.rx_packets), sum(ports, |at| at.nic.tx_completed), losses::total(ports)]
}
