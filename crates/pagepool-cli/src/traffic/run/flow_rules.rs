//! Cards that bring the packets of a match to the queues of a command (ntuple), while it runs.

use std::time::Duration;

use pagepool_net::Match;
use pagepool_net::link::{FlowRule, HeldFlowRules, NetError};

use crate::report::error::error_chain;
use crate::report::output;
use crate::report::terminal::OWN_LINE;
use crate::traffic::command::TrafficPlan;
use crate::traffic::interface::Interface;
use crate::traffic::setup::listed;

/// How often it is looked whether the rules are still there.
const EVERY: Duration = Duration::from_secs(1);

/// What is held. The rules are deleted when this is dropped, with a warning where that fails.
#[derive(Default)]
pub struct FlowRules {
    held: Vec<InterfaceRules>,
    looked: Duration,
    /// What was warned of, for the verdict.
    pub warned: Vec<String>,
}

/// Those of an interface.
struct InterfaceRules {
    interface: String,
    held: HeldFlowRules,
    /// Some were gone at the last look, and not put back.
    are_gone: bool,
}

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

    /// To the queues that are used of each interface, if the plan has that. An error leaves all as it was, or
    /// what stays is warned of.
    pub fn add(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<Self, String> {
        let (rules, mut this) = (rules(plan)?, Self::default());
        for interface in if rules.is_some() { interfaces } else { &[] } {
            this.held.push(InterfaceRules::add(rules.as_deref().unwrap_or_default(), interface)?);
        }
        Ok(this)
    }

    /// Puts back what drivers drop when a link goes down or the number of its queues changes, if it is time
    /// to look. `at`: the time since the start.
    pub fn look(&mut self, at: Duration) {
        if at >= self.looked + EVERY {
            self.looked = at;
            self.held.iter_mut().for_each(|card| self.warned.extend(card.look()));
        }
    }
}

impl InterfaceRules {
    fn add(rules: &[FlowRule], interface: &Interface) -> Result<Self, String> {
        let held = HeldFlowRules::add(&interface.link, rules, &interface.queues);
        let mut held = held.map_err(|error| refused(&error))?;
        output::note(format_args!(
            "{} has {} to its queues {} until this command ends; if it is killed, undo that by{OWN_LINE}{}",
            interface.link.name,
            counted(rules.len()),
            listed(&interface.queues),
            held.undo()
        ));
        Ok(Self { interface: interface.link.name.clone(), held, are_gone: false })
    }

    /// The warning that rules are gone, once each time that they go.
    fn look(&mut self) -> Option<String> {
        let (name, looked) = (&self.interface, self.held.look());
        let was_gone = std::mem::replace(&mut self.are_gone, looked.is_err());
        match looked {
            Ok(0) => None,
            Ok(count) => {
                output::note(format_args!(
                    "{} of {name} had gone, and {} back: packets of the match came to other queues \
                     meanwhile. If this command is killed, undo that by{OWN_LINE}{}",
                    counted(count),
                    if count == 1 { "is" } else { "are" },
                    self.held.undo()
                ));
                None
            }
            Err(_) if was_gone => None,
            Err(error) => {
                let why = error_chain(&error);
                let warning = format!("rules of {name} may be gone, and are not put back: {why}");
                output::warn(&warning);
                Some(warning)
            }
        }
    }
}

fn counted(rules: usize) -> String {
    format!("{rules} rule{}", if rules == 1 { "" } else { "s" })
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
        for InterfaceRules { mut held, .. } in self.held.drain(..) {
            let undo = held.undo();
            if let Err(error) = held.restore() {
                let why = error_chain(&error);
                output::warn(format_args!("rules stay on the card: {why}; use{OWN_LINE}{undo}"));
            }
        }
    }
}
