//! The warnings of a run, after its XDP programs are attached and before it takes the first packet.

use pagepool_link::{Ethtool, shell_word};
use pagepool_net::Match;

use super::environment::Environment;
use crate::report::{OWN_LINE, output, ranges};
use crate::traffic::command::TrafficPlan;
use crate::traffic::run::offloads::OffloadsOff;
use crate::traffic::sockets::{Interface, OpenedInterface, pairs_of, with_sockets};

pub fn warn(
    plan: &TrafficPlan<'_>,
    Environment { kernel, interfaces, cpus, .. }: &mut Environment,
    offloads: &mut OffloadsOff,
    opened: &[OpenedInterface],
) -> Result<(), String> {
    if plan.receive.is_some() {
        offloads.warn(kernel, opened)?;
        for (interface, opened) in interfaces.iter().zip(opened) {
            if opened.zero_copy == Some(true) && !opened.multi_buffer {
                interface
                    .cut_short(opened.chunk)
                    .iter()
                    .for_each(|warning| output::warn(format_args!("{warning}")));
            }
        }
        interfaces.iter().for_each(|interface| note_other_queues(plan, interface));
    }
    warn_of_idle_maps(plan, interfaces);
    warn_of_cpus(plan, interfaces, cpus.len());
    Ok(())
}

/// A card may put packets of the match into queues that the run does not use. Prints the commands that move
/// them to its queues, if the card has rules for single flows, and rules can express the match.
fn note_other_queues(plan: &TrafficPlan<'_>, interface: &Interface) {
    let (name, queues) = (&interface.name, &interface.queues);
    let is_spread = queues.len() < interface.queues_of as usize && !plan.rss();
    let steer = plan.receive.and_then(|receive| receive.steer.as_ref());
    let Some(Ok(rules)) = steer.filter(|_| is_spread).map(Match::flow_rules) else { return };
    // Drivers refuse the question with several errnos, which all mean that there are no rules.
    let Ok(Some(_)) = Ethtool::open().and_then(|ethtool| ethtool.flow_rules(name)) else { return };
    let word = shell_word(name);
    let adds = rules.iter().zip(queues.iter().cycle());
    let adds = adds.map(|(rule, queue)| format!("ethtool -N {word} {rule} action {queue}"));
    output::note(format_args!(
        "packets of the match that {name} puts into queues other than {} go to the kernel. These rules move \
         them (`ethtool -K {word} ntuple on` first, if they are refused):{OWN_LINE}{}",
        ranges(queues),
        adds.collect::<Vec<_>>().join("; ")
    ));
}

/// Warns if no program is attached that could redirect to the given map.
fn warn_of_idle_maps(plan: &TrafficPlan<'_>, interfaces: &[Interface]) {
    let maps = plan.receive.into_iter().flat_map(|receive| &receive.map);
    let has_program = |of: &Interface| of.link.as_ref().is_some_and(|link| !link.xdp.is_empty());
    for (interface, map) in with_sockets(interfaces).iter().zip(maps).filter(|(of, _)| !has_program(of)) {
        output::warn(format_args!(
            "no XDP program is attached to {}: nothing redirects its packets to {}",
            interface.name,
            map.display()
        ));
    }
}

/// Notes that some of the CPUs have no thread.
fn warn_of_cpus(plan: &TrafficPlan<'_>, interfaces: &[Interface], cpus: usize) {
    let threads = plan.options.threads.map_or(pairs_of(interfaces), usize::from);
    if cpus > threads {
        let why = match plan.options.threads {
            Some(_) => "--threads is",
            None => "one thread per queue or pair of queues makes",
        };
        output::note(format_args!(
            "{} of the {cpus} CPUs not used: {why} {threads}",
            if cpus - threads == 1 { "one is".into() } else { format!("{} are", cpus - threads) }
        ));
    }
}
