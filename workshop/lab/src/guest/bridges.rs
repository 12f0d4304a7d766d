//! Connects the taps of a guest's multi-queue cards with bridges, in a separate network namespace of the
//! host.
//!
//! QEMU's hub has one queue per card, and its taps are in the host's own namespace. Here only the cards of
//! one wire are connected, over all queues of their taps.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use pagepool_link::Namespace;

use super::card::{GuestCard, tap_name};
use super::error::GuestError;

/// A namespace with the taps of these cards, and a bridge for each wire. `None` if no card is on a tap.
pub(super) fn bridged(cards: &[GuestCard]) -> Result<Option<Arc<Namespace>>, GuestError> {
    let taps = || {
        let numbered = cards.iter().enumerate();
        numbered.filter_map(|(number, card)| Some((number, card.wire(), card.tap()?)))
    };
    if taps().next().is_none() {
        return Ok(None);
    }
    let made = Namespace::new("guest");
    let namespace =
        made.map_err(|error| GuestError::Missing(format!("taps require a network namespace: {error}")))?;
    for wire in taps().map(|(_, wire, _)| wire).collect::<BTreeSet<_>>() {
        // Without multicast snooping a bridge forwards multicasts to every port.
        ip(&namespace, format!("link add bridge{wire} type bridge mcast_snooping 0"))?;
        ip(&namespace, format!("link set bridge{wire} up"))?;
    }
    for (number, wire, queues) in taps() {
        let tap = tap_name(number);
        let several = if queues > 1 { " multi_queue" } else { "" };
        ip(&namespace, format!("tuntap add {tap} mode tap{several}"))?;
        ip(&namespace, format!("link set {tap} master bridge{wire} up"))?;
    }
    Ok(Some(Arc::new(namespace)))
}

fn ip(namespace: &Namespace, words: String) -> Result<(), GuestError> {
    let missing = |why: &str| GuestError::Missing(format!("taps on bridges require `ip {words}`: {why}"));
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    let output = namespace.run(move || command.output()).map_err(|error| missing(&error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(missing(String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(texts: &[&str]) -> Vec<GuestCard> {
        texts.iter().map(|text| GuestCard::new(text).expect("it is one")).collect()
    }

    #[test]
    fn cards_that_are_on_no_tap_need_no_namespace() {
        assert!(bridged(&cards(&["virtio", "igb,wire=2"])).expect("nothing to be made").is_none());
    }

    #[test]
    fn the_taps_of_a_wire_are_on_one_bridge() {
        let all = cards(&["virtio,tap=4", "igb", "e1000e,tap=1", "virtio,wire=2,tap=2"]);
        let namespace = match bridged(&all) {
            Ok(namespace) => namespace.expect("there are taps"),
            Err(error) => return println!("SKIP the_taps_of_a_wire_are_on_one_bridge: {error}"),
        };
        let output =
            namespace.run(|| Command::new("ip").args(["-o", "link"]).output()).expect("ip was there");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |name: &str| said.lines().find(|line| line.contains(&format!(" {name}:"))).unwrap_or("");
        for (tap, bridge) in [("guest0", "bridge1"), ("guest2", "bridge1"), ("guest3", "bridge2")] {
            assert!(line(tap).contains(&format!(" master {bridge} ")), "{tap}: {said}");
        }
        assert!(line("guest1").is_empty(), "it is on QEMU's hub: {said}");
    }
}
