//! Rules for single flows in a driver's table: added, put back where the driver dropped them, and removed.

use super::rule::FlowRule;
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::offload::name_text::shell_word;
use crate::link::sys::ethtool::same_packets;

/// What a driver does with rules.
pub(super) trait RuleTable {
    /// Where there are rules.
    fn places(&self) -> Result<Vec<u32>, NetError>;
    /// Adds a rule, and says where it is and how it is shown.
    fn add(&self, rule: &FlowRule, queue: u32) -> Result<(u32, Vec<u32>), NetError>;
    /// How the rule at a place is shown; a place without a rule is an error.
    fn shown(&self, place: u32) -> Result<Vec<u32>, NetError>;
    fn delete(&self, place: u32) -> Result<(), NetError>;
    /// Whether that changed something. Off deletes all rules.
    fn set_ntuple(&self, on: bool) -> Result<bool, NetError>;
    /// The error that there is a rule for the same packets at a place.
    fn is_there(&self, rule: &FlowRule, place: u32) -> NetError;
}

/// Those of a card.
pub(super) struct CardRules<'a> {
    pub(super) ethtool: &'a Ethtool,
    pub(super) link: &'a str,
}

impl RuleTable for CardRules<'_> {
    fn places(&self) -> Result<Vec<u32>, NetError> {
        self.ethtool.flow_rule_places(self.link)
    }

    fn add(&self, rule: &FlowRule, queue: u32) -> Result<(u32, Vec<u32>), NetError> {
        self.ethtool.add_flow_rule(self.link, rule, queue)
    }

    fn shown(&self, place: u32) -> Result<Vec<u32>, NetError> {
        self.ethtool.flow_rule(self.link, place)
    }

    fn delete(&self, place: u32) -> Result<(), NetError> {
        self.ethtool.delete_flow_rule(self.link, place)
    }

    fn set_ntuple(&self, on: bool) -> Result<bool, NetError> {
        self.ethtool.set_ntuple(self.link, on)
    }

    fn is_there(&self, rule: &FlowRule, place: u32) -> NetError {
        let (link, part) = (self.link.to_owned(), rule.part.clone());
        NetError::FlowRuleThere { link, part, rule: rule.to_string(), place }
    }
}

/// What was added to a table, to be removed from it.
#[derive(Debug, Default)]
pub(super) struct PlacedRules {
    rules: Vec<PlacedRule>,
    /// Whether `ntuple` was turned on.
    turned_on: bool,
}

#[derive(Debug)]
struct PlacedRule {
    rule: FlowRule,
    queue: u32,
    place: u32,
    shown: Vec<u32>,
}

/// Rules were not added.
#[derive(Debug)]
pub(super) struct Refused {
    why: NetError,
    /// What of them could not be removed, and why.
    stay: Option<(PlacedRules, NetError)>,
}

impl Refused {
    pub(super) fn into_error(self: Box<Self>, link: &str) -> NetError {
        let Some((placed, why)) = self.stay else { return self.why };
        let (refused, source) = (Box::new(self.why), Box::new(why));
        NetError::FlowRulesStay { link: link.into(), undo: placed.undo(link), refused, source }
    }
}

impl PlacedRules {
    /// The first rule to the first queue, and so on in turn. An error leaves the table as it was, or says
    /// what stays.
    pub(super) fn add(
        table: &impl RuleTable,
        rules: &[FlowRule],
        queues: &[u32],
    ) -> Result<Self, Box<Refused>> {
        let mut this = Self::default();
        match this.add_all(table, rules, queues) {
            Ok(()) => Ok(this),
            Err(why) => {
                let removed = this.remove(table);
                Err(Box::new(Refused { why, stay: removed.err().map(|error| (this, error)) }))
            }
        }
    }

    fn add_all(
        &mut self,
        table: &impl RuleTable,
        rules: &[FlowRule],
        queues: &[u32],
    ) -> Result<(), NetError> {
        let others = table.places()?.into_iter().map(|place| Ok((place, table.shown(place)?)));
        let others = others.collect::<Result<Vec<_>, NetError>>()?;
        rules.iter().try_for_each(|rule| is_new(table, &others, rule))?;
        for (rule, &queue) in rules.iter().zip(queues.iter().cycle()) {
            let (place, shown) = self.add_one(table, rule, queue)?;
            self.rules.push(PlacedRule { rule: rule.clone(), queue, place, shown });
        }
        Ok(())
    }

    /// Turns `ntuple` on if no rule is taken without: on it makes some cards restart, and others steer by
    /// rules of their own.
    fn add_one(
        &mut self,
        table: &impl RuleTable,
        rule: &FlowRule,
        queue: u32,
    ) -> Result<(u32, Vec<u32>), NetError> {
        match table.add(rule, queue) {
            Err(_) if self.rules.is_empty() && table.set_ntuple(true)? => {
                self.turned_on = true;
                table.add(rule, queue)
            }
            added => added,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.turned_on
    }

    /// Adds again those that are gone, and says how many. An error is the first of those that were not added.
    pub(super) fn put_back(&mut self, table: &impl RuleTable) -> Result<usize, NetError> {
        let there = table.places()?;
        let (mut count, mut result) = (0, Ok(()));
        for at in 0..self.rules.len() {
            match self.put_one_back(table, &there, at) {
                Ok(was_gone) => count += usize::from(was_gone),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.and(Ok(count))
    }

    /// Whether it was gone. Not where somebody else has added an equal one meanwhile.
    fn put_one_back(&mut self, table: &impl RuleTable, there: &[u32], at: usize) -> Result<bool, NetError> {
        if self.rules[at].is_in(table, there)? {
            return Ok(false);
        }
        for &place in there {
            is_new(table, &[(place, table.shown(place)?)], &self.rules[at].rule)?;
        }
        let placed = &mut self.rules[at];
        (placed.place, placed.shown) = table.add(&placed.rule, placed.queue)?;
        Ok(true)
    }

    /// Leaves what somebody else put in the place of a rule, and `ntuple` on if there are rules of others.
    /// An error is the first: what was not removed is kept.
    pub(super) fn remove(&mut self, table: &impl RuleTable) -> Result<(), NetError> {
        if self.is_empty() {
            return Ok(());
        }
        let (there, mut result) = (table.places()?, Ok(()));
        for placed in std::mem::take(&mut self.rules) {
            let removed = placed.is_in(table, &there).and_then(|is_there| match is_there {
                true => table.delete(placed.place),
                false => Ok(()),
            });
            if let Err(error) = removed {
                result = result.and(Err(error));
                self.rules.push(placed);
            }
        }
        if self.turned_on && table.places()?.is_empty() {
            result = result.and(table.set_ntuple(false).map(drop));
            self.turned_on = result.is_err();
        }
        result
    }

    /// What removes them by hand.
    pub(super) fn undo(&self, link: &str) -> String {
        let link = shell_word(link);
        let delete = self.rules.iter().map(|placed| format!("ethtool -N {link} delete {}", placed.place));
        let off = format!("  # and ethtool -K {link} ntuple off, if ethtool -n {link} lists no rule then");
        delete.collect::<Vec<_>>().join("; ") + if self.turned_on { &off } else { "" }
    }
}

impl PlacedRule {
    /// Whether it is in a table with rules at these places.
    fn is_in(&self, table: &impl RuleTable, there: &[u32]) -> Result<bool, NetError> {
        Ok(there.contains(&self.place) && table.shown(self.place)? == self.shown)
    }
}

/// An error if one of these rules takes the same packets: some drivers would replace it.
fn is_new(table: &impl RuleTable, others: &[(u32, Vec<u32>)], rule: &FlowRule) -> Result<(), NetError> {
    let spec = rule.spec();
    match others.iter().find(|(_, shown)| same_packets(shown, &spec)) {
        Some(&(place, _)) => Err(table.is_there(rule, place)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::{BTreeMap, BTreeSet};
    use std::io;

    use super::*;
    use crate::Match;
    use crate::link::sys::ethtool::shown_words;
    use crate::sys::errno::{EACCES, EINVAL, ENOENT};

    /// A driver with as many places.
    #[derive(Default)]
    struct FakeTable {
        rules: RefCell<BTreeMap<u32, Vec<u32>>>,
        free: u32,
        on: Cell<bool>,
        /// It takes rules while `ntuple` is off.
        takes_always: bool,
        /// Places whose rules it neither shows nor deletes any more.
        stuck: RefCell<BTreeSet<u32>>,
        /// How often `ntuple` was changed.
        changed: Cell<u32>,
    }

    fn failed(about: impl Into<String>, errno: i32) -> NetError {
        NetError::call("ioctl", about, io::Error::from_raw_os_error(errno))
    }

    impl FakeTable {
        fn is_stuck(&self, place: u32) -> Result<(), NetError> {
            match self.stuck.borrow().contains(&place) {
                true => Err(failed(format!("place {place} is stuck"), EACCES)),
                false => Ok(()),
            }
        }

        /// Each place with its queue.
        fn queues(&self) -> Vec<(u32, u32)> {
            let queue = |(&place, shown): (&u32, &Vec<u32>)| (place, shown[38]);
            self.rules.borrow().iter().map(queue).collect()
        }

        /// Somebody else puts a rule there.
        fn put(&self, place: u32, of: &str, queue: u32) {
            let shown = shown_words(&rules(of)[0].spec(), queue, place);
            self.rules.borrow_mut().insert(place, shown);
        }
    }

    impl RuleTable for FakeTable {
        fn places(&self) -> Result<Vec<u32>, NetError> {
            Ok(self.rules.borrow().keys().copied().collect())
        }

        fn add(&self, rule: &FlowRule, queue: u32) -> Result<(u32, Vec<u32>), NetError> {
            if !self.on.get() && !self.takes_always {
                return Err(failed("ntuple is off", EINVAL));
            }
            let place = (0..self.free).rev().find(|place| !self.rules.borrow().contains_key(place));
            let place = place.ok_or_else(|| failed(rule.to_string(), EINVAL))?;
            let shown = shown_words(&rule.spec(), queue, place);
            self.rules.borrow_mut().insert(place, shown.clone());
            Ok((place, shown))
        }

        fn shown(&self, place: u32) -> Result<Vec<u32>, NetError> {
            self.is_stuck(place)?;
            self.rules.borrow().get(&place).cloned().ok_or_else(|| failed("no rule", ENOENT))
        }

        fn delete(&self, place: u32) -> Result<(), NetError> {
            self.is_stuck(place)?;
            self.rules.borrow_mut().remove(&place).expect("a rule is there");
            Ok(())
        }

        fn set_ntuple(&self, on: bool) -> Result<bool, NetError> {
            if !on {
                self.rules.borrow_mut().clear();
            }
            let changes = self.on.replace(on) != on;
            self.changed.set(self.changed.get() + u32::from(changes));
            Ok(changes)
        }

        fn is_there(&self, rule: &FlowRule, place: u32) -> NetError {
            CardRules { ethtool: &Ethtool::open().unwrap(), link: "eth0" }.is_there(rule, place)
        }
    }

    fn rules(of: &str) -> Vec<FlowRule> {
        of.parse::<Match>().unwrap().flow_rules().unwrap()
    }

    #[test]
    fn rules_go_to_the_queues_in_turn_and_all_is_as_it_was_afterwards() {
        let table = FakeTable { free: 4, ..Default::default() };
        let three = rules("ethertype 1 or ethertype 2 or ethertype 3");
        let mut placed = PlacedRules::add(&table, &three, &[5, 7]).unwrap();
        assert_eq!(table.queues(), [(1, 5), (2, 7), (3, 5)]);
        placed.remove(&table).unwrap();
        assert!(table.rules.borrow().is_empty() && !table.on.get());
        table.on.set(true);
        PlacedRules::add(&table, &three, &[5]).unwrap().remove(&table).unwrap();
        assert!(table.rules.borrow().is_empty() && table.on.get(), "it was on before");
    }

    #[test]
    fn ntuple_is_turned_on_only_for_a_driver_that_takes_no_rule_without() {
        let table = FakeTable { free: 4, takes_always: true, ..Default::default() };
        PlacedRules::add(&table, &rules("ethertype 1"), &[5]).unwrap().remove(&table).unwrap();
        assert_eq!((table.queues(), table.changed.get()), (vec![], 0));
        let table = FakeTable { free: 4, ..Default::default() };
        PlacedRules::add(&table, &rules("ethertype 1"), &[5]).unwrap().remove(&table).unwrap();
        assert_eq!((table.on.get(), table.changed.get()), (false, 2), "on and off");
    }

    #[test]
    fn a_rule_that_is_refused_takes_those_before_it_along() {
        let table = FakeTable { free: 1, ..Default::default() };
        let refused = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[0]).unwrap_err();
        let refused = refused.into_error("eth0");
        assert!(refused.to_string().contains("proto 0x0002"), "{refused}");
        assert!(table.rules.borrow().is_empty() && !table.on.get());
    }

    #[test]
    fn what_a_refused_start_leaves_is_said_with_what_deletes_it() {
        let table = FakeTable { free: 1, ..Default::default() };
        table.stuck.borrow_mut().insert(0);
        let refused = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[0]).unwrap_err();
        let refused = refused.into_error("eth0");
        let NetError::FlowRulesStay { undo, refused, source, .. } = &refused else { panic!("{refused}") };
        assert!(undo.starts_with("ethtool -N eth0 delete 0  # and ethtool -K eth0 ntuple off"), "{undo}");
        assert!(refused.to_string().contains("proto 0x0002"), "{refused}");
        assert!(source.to_string().contains("stuck"), "{source}");
        assert_eq!(table.queues(), [(0, 0)]);
    }

    #[test]
    fn rules_of_others_stay() {
        let table = FakeTable { free: 4, ..Default::default() };
        let mut placed = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[5]).unwrap();
        table.put(3, "arp", 9); // in the place of one
        table.rules.borrow_mut().remove(&2);
        placed.remove(&table).unwrap();
        assert_eq!(table.queues(), [(3, 9)]);
        assert!(table.on.get(), "off would have deleted it");
    }

    #[test]
    fn a_rule_that_is_not_shown_is_an_error_and_no_rule_of_others() {
        let table = FakeTable { free: 4, ..Default::default() };
        let mut placed = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[5]).unwrap();
        table.stuck.borrow_mut().insert(3);
        let error = placed.remove(&table).unwrap_err();
        assert!(error.to_string().contains("place 3 is stuck"), "{error}");
        assert_eq!(table.queues(), [(3, 5)], "the other one is gone");
        assert!(placed.undo("eth0").starts_with("ethtool -N eth0 delete 3  #"), "{}", placed.undo("eth0"));
        table.stuck.borrow_mut().clear();
        placed.remove(&table).unwrap();
        assert!(table.rules.borrow().is_empty() && !table.on.get());
    }

    #[test]
    fn an_equal_rule_of_others_is_refused_with_its_place_before_anything_is_changed() {
        let table = FakeTable { free: 4, ..Default::default() };
        table.put(2, "ethertype 2", 1);
        let refused = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[5]).unwrap_err();
        let refused = refused.into_error("eth0");
        assert!(matches!(refused, NetError::FlowRuleThere { place: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("ethtool -N eth0 delete 2"), "{refused}");
        assert_eq!((table.queues(), table.changed.get()), (vec![(2, 1)], 0));
        PlacedRules::add(&table, &rules("ethertype 1 or ethertype 3"), &[5]).unwrap();
    }

    #[test]
    fn rules_that_the_driver_dropped_are_put_back() {
        let table = FakeTable { free: 4, ..Default::default() };
        let mut placed = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[5, 6]).unwrap();
        assert_eq!(placed.put_back(&table).unwrap(), 0);
        table.rules.borrow_mut().clear();
        assert_eq!(placed.put_back(&table).unwrap(), 2);
        assert_eq!(table.queues(), [(2, 6), (3, 5)]);
        table.put(3, "arp", 9);
        assert_eq!(placed.put_back(&table).unwrap(), 1, "beside what is in its place");
        assert_eq!(table.queues(), [(1, 5), (2, 6), (3, 9)]);
        placed.remove(&table).unwrap();
        assert_eq!(table.queues(), [(3, 9)]);
    }

    #[test]
    fn a_rule_that_is_not_put_back_is_an_error_and_tried_again() {
        let table = FakeTable { free: 2, ..Default::default() };
        let mut placed = PlacedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[5, 6]).unwrap();
        table.rules.borrow_mut().clear();
        table.put(0, "arp", 9);
        let error = placed.put_back(&table).unwrap_err();
        assert!(error.to_string().contains("proto 0x0002"), "{error}");
        assert_eq!(table.queues(), [(0, 9), (1, 5)]);
        table.rules.borrow_mut().remove(&0);
        assert_eq!(placed.put_back(&table).unwrap(), 1);
        assert_eq!(table.queues(), [(0, 6), (1, 5)]);
    }
}
