//! Cards that bring the packets of a match to the queues of a command (ntuple), while it runs.

use pagepool_net::Match;
use pagepool_net::link::{FlowRule, HeldFlowRules, NetError};

use crate::report::error::error_chain;
use crate::report::output;
use crate::report::terminal::OWN_LINE;
use crate::traffic::command::TrafficPlan;
use crate::traffic::interface::Interface;
use crate::traffic::setup::listed;

/// What is held. The rules are deleted when this is dropped, with a warning where that fails.
pub struct FlowRules(Vec<HeldFlowRules>);

impl FlowRules {
    /// An error for a match that is no rules, or an interface that has none, or on which another run holds
    /// some, but for the one that ends first: before anything is opened.
    pub fn check(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<(), String> {
        if rules(plan)?.is_none() {
            return Ok(());
        }
        let check = |interface: &Interface| match HeldFlowRules::is_free(&interface.link) {
            Err(NetError::FlowRulesHeld { process, .. })
                if process.is_some() && process == plan.predecessor =>
            {
                Ok(())
            }
            is_free => is_free,
        };
        interfaces.iter().try_for_each(check).map_err(|error| refused(&error))
    }

    /// To the queues that are used of each interface, if the plan has that. An error leaves all as it was.
    pub fn add(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<Self, String> {
        let Some(rules) = rules(plan)? else { return Ok(Self(Vec::new())) };
        let hold = |interface: &Interface| {
            let held = HeldFlowRules::add(&interface.link, &rules, &interface.queues);
            let held = held.map_err(|error| refused(&error))?;
            let (count, s) = (rules.len(), if rules.len() == 1 { "" } else { "s" });
            output::note(format_args!(
                "{} has {count} rule{s} to its queues {} until this command ends; if it is killed, undo that \
                 by{OWN_LINE}{}",
                interface.link.name,
                listed(&interface.queues),
                held.undo()
            ));
            Ok(held)
        };
        interfaces.iter().map(hold).collect::<Result<_, _>>().map(Self)
    }
}

/// Those of the plan's match, if they are asked for.
fn rules(plan: &TrafficPlan<'_>) -> Result<Option<Vec<FlowRule>>, String> {
    let steer = plan.steer.filter(|_| plan.ntuple).map(Match::flow_rules);
    steer.transpose().map_err(|error| format!("--ntuple: {}", error_chain(&error)))
}

fn refused(error: &NetError) -> String {
    format!("--ntuple: {}", error_chain(error))
}

impl Drop for FlowRules {
    fn drop(&mut self) {
        for held in self.0.drain(..) {
            let undo = held.undo();
            if let Err(error) = held.restore() {
                let why = error_chain(&error);
                output::warn(format_args!("rules stay on the card: {why}; use{OWN_LINE}{undo}"));
            }
        }
    }
}
