//! Phase 2: sockets are open, and nothing is redirected to them.

use pagepool::Publication;
use pagepool_link::Promiscuous;

use super::environment::Environment;
use super::planned::Planned;
use crate::report::in_words;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::run::offloads::OffloadsOff;
use crate::traffic::sockets::{Interface, SetupParams, TrafficSetup, pairs_of, with_sockets};

/// The fields are in the order in which they are undone.
pub struct Opened<'a, C> {
    pub setup: TrafficSetup,
    pub promiscuous: Vec<Promiscuous>,
    pub published: Option<Publication>,
    pub offloads: OffloadsOff,
    pub planned: Planned<'a, C>,
}

impl<'a, C: TrafficCommand> Opened<'a, C> {
    /// Turns off offloads before sockets are opened: a card may restart for that.
    pub fn open(mut planned: Planned<'a, C>) -> Result<Self, String> {
        let (plan, Environment { kernel, interfaces, .. }) = (&planned.plan, &mut planned.environment);
        let receiving = if plan.receive.is_some() { with_sockets(interfaces) } else { Vec::new() };
        let fix = plan.receive.is_some_and(|receive| receive.fix_offloads);
        let offloads = OffloadsOff::new(fix, kernel, &receiving)?;
        let published = plan.options.publish.publish(plan.name);
        let setup = open_sockets(&planned)
            .or_else(|error| planned.environment.check_interrupted().and(Err(error)))?;
        let promiscuous = promiscuous(&planned.plan, &planned.environment.interfaces)?;
        planned.environment.wait_for_links()?;
        Ok(Self { setup, promiscuous, published, offloads, planned })
    }
}

fn open_sockets<C>(planned: &Planned<'_, C>) -> Result<TrafficSetup, String> {
    let Planned { plan, environment, sizes, .. } = planned;
    let pairs = pairs_of(&environment.interfaces);
    if let Some(threads) = plan.options.threads.filter(|&threads| usize::from(threads) > pairs) {
        return Err(format!(
            "--threads is {threads}, but must be at most {pairs}: a thread has a queue, or a pair"
        ));
    }
    let TrafficPlan { name, options, receive, tx_mode, .. } = *plan;
    let params = SetupParams { sizes: *sizes, options, receive, tx_mode, end: &environment.signals.end };
    TrafficSetup::open(name, &environment.interfaces, params)
}

/// Puts the interfaces into promiscuous mode, if the plan says so, until the values are dropped.
fn promiscuous(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<Vec<Promiscuous>, String> {
    let all = if plan.promiscuous { with_sockets(interfaces) } else { Vec::new() };
    let links = all.iter().filter_map(|interface| interface.link.as_ref());
    links.map(Promiscuous::hold).collect::<Result<_, _>>().map_err(in_words)
}
