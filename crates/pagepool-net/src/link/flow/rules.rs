//! Rules of a card for single flows (ntuple): held for a while, and deleted again.

use super::claim::{Claim, Subject};
use super::rule::FlowRule;
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::LinkInfo;
use crate::link::netlink::Netlink;

/// A card that has rules which bring packets to some of its queues, until this is dropped.
///
/// The rules are behind those that are there, which go first. A rule that somebody else put in the place of
/// one meanwhile stays. If the card's feature `ntuple` was off it is on meanwhile, and off again at the end,
/// unless somebody else has rules then: off deletes all. Changing it makes some cards restart. One per card:
/// a second one is refused, also in another process. The link is found again if it was renamed. A process
/// that is killed, or that aborts, drops nothing: [`undo`](Self::undo) says what deletes the rules by hand.
///
/// ```no_run
/// // It changes a card of the machine that runs this.
/// use pagepool_net::Match;
/// use pagepool_net::link::{HeldFlowRules, Netlink};
/// let link = Netlink::open()?.link("eth0")?;
/// let rules = "udp dst port 4789".parse::<Match>()?.flow_rules()?;
/// let held = HeldFlowRules::add(&link, &rules, &[2, 3])?;
/// eprintln!("if this process is killed: {}", held.undo());
/// held.restore()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HeldFlowRules {
    netlink: Netlink,
    ethtool: Ethtool,
    link: LinkInfo,
    added: AddedRules,
    _claim: Claim,
}

impl HeldFlowRules {
    /// An error that names the process if somebody has a value of a link of the calling thread's network
    /// namespace, or that the driver has no such rules. [`add`](Self::add) says so, too; this is for who
    /// wants to know it before.
    ///
    /// ```
    /// use pagepool_net::link::{HeldFlowRules, NetError, Netlink};
    /// let link = Netlink::open()?.link("lo")?;
    /// let refused = HeldFlowRules::is_free(&link).unwrap_err();
    /// assert!(matches!(refused, NetError::NoFlowRules { .. }), "{refused}");
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn is_free(link: &LinkInfo) -> Result<(), NetError> {
        Claim::is_free(Subject::Rules, link)?;
        has_rules(&Ethtool::open()?, link)
    }

    /// Adds rules to a link of the calling thread's network namespace that bring packets to these queues: the
    /// first rule to the first queue, and so on in turn. An error leaves all as it was: if somebody has rules
    /// of this card, or it has none, or takes not all of these, or has not these queues.
    pub fn add(link: &LinkInfo, rules: &[FlowRule], queues: &[u32]) -> Result<Self, NetError> {
        let (netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
        has_rules(&ethtool, link)?;
        let claim = Claim::take(Subject::Rules, link)?;
        let there = ethtool.channels(&link.name)?.map_or(link.rx_queues, |channels| channels.rx);
        if queues.is_empty() || queues.iter().any(|&queue| queue >= there) {
            let value = format!("{queues:?} of {there}");
            return Err(NetError::OutOfRange { field: "queues", value, range: "queues of the card" });
        }
        let added = AddedRules::add(&CardRules { ethtool: &ethtool, link: &link.name }, rules, queues)?;
        Ok(Self { netlink, ethtool, link: link.clone(), added, _claim: claim })
    }

    /// The commands that delete the rules by hand. The one that turns `ntuple` off, which deletes those of
    /// others, too, stands behind a `#`.
    pub fn undo(&self) -> String {
        let link = &self.link.name;
        let delete = self.added.places.iter().map(|(place, _)| format!("ethtool -N {link} delete {place}"));
        let off = format!("  # and ethtool -K {link} ntuple off, if ethtool -n {link} lists no rule then");
        delete.collect::<Vec<_>>().join("; ") + if self.added.turned_on { &off } else { "" }
    }

    /// Deletes the rules now, and says why not if that fails. A link that was removed is no error.
    pub fn restore(mut self) -> Result<(), NetError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), NetError> {
        let added = std::mem::take(&mut self.added);
        if added.places.is_empty() && !added.turned_on {
            return Ok(());
        }
        let links = self.netlink.links()?;
        let Some(link) = links.iter().find(|link| link.index == self.link.index) else { return Ok(()) };
        added.remove(&CardRules { ethtool: &self.ethtool, link: &link.name })
    }
}

/// What a driver does with rules.
trait RuleTable {
    /// How many there are; `None` if it has none at all.
    fn count(&self) -> Result<Option<u32>, NetError>;
    /// Adds a rule, and says where it is and how it is shown.
    fn add(&self, rule: &FlowRule, queue: u32) -> Result<(u32, Vec<u32>), NetError>;
    /// How the rule at a place is shown; a place without a rule is an error.
    fn shown(&self, place: u32) -> Result<Vec<u32>, NetError>;
    fn delete(&self, place: u32) -> Result<(), NetError>;
    /// Whether that changed something. Off deletes all rules.
    fn set_ntuple(&self, on: bool) -> Result<bool, NetError>;
}

/// Those of a card.
struct CardRules<'a> {
    ethtool: &'a Ethtool,
    link: &'a str,
}

impl RuleTable for CardRules<'_> {
    fn count(&self) -> Result<Option<u32>, NetError> {
        self.ethtool.flow_rules(self.link)
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
}

/// What was added to a table, to be removed from it.
#[derive(Debug, Default)]
struct AddedRules {
    /// Where the rules are, and how they are shown.
    places: Vec<(u32, Vec<u32>)>,
    /// Whether `ntuple` was turned on.
    turned_on: bool,
}

impl AddedRules {
    /// The first rule to the first queue, and so on in turn. An error leaves the table as it was.
    fn add(table: &impl RuleTable, rules: &[FlowRule], queues: &[u32]) -> Result<Self, NetError> {
        let mut this = Self { places: Vec::new(), turned_on: table.set_ntuple(true)? };
        for (rule, &queue) in rules.iter().zip(queues.iter().cycle()) {
            match table.add(rule, queue) {
                Ok(place) => this.places.push(place),
                Err(error) => {
                    let _ = this.remove(table); // the first error says more
                    return Err(error);
                }
            }
        }
        Ok(this)
    }

    /// Leaves what somebody else put in the place of a rule, and `ntuple` on if there are rules of others.
    fn remove(self, table: &impl RuleTable) -> Result<(), NetError> {
        let mut result = Ok(());
        for (place, shown) in self.places {
            if table.shown(place).is_ok_and(|now| now == shown) {
                result = result.and(table.delete(place));
            }
        }
        if self.turned_on && table.count()? == Some(0) {
            result = result.and(table.set_ntuple(false).map(drop));
        }
        result
    }
}

fn has_rules(ethtool: &Ethtool, link: &LinkInfo) -> Result<(), NetError> {
    match ethtool.flow_rules(&link.name)? {
        Some(_) => Ok(()),
        None => Err(NetError::NoFlowRules { link: link.name.clone() }),
    }
}

impl Drop for HeldFlowRules {
    fn drop(&mut self) {
        let _ = self.put_back(); // `restore` says why not
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::io;

    use super::*;
    use crate::Match;
    use crate::sys::errno::{EINVAL, ENOENT};

    /// A driver with as many places: a rule is shown as its queue.
    #[derive(Default)]
    struct FakeTable {
        rules: RefCell<BTreeMap<u32, u32>>,
        free: u32,
        on: Cell<bool>,
    }

    impl RuleTable for FakeTable {
        fn count(&self) -> Result<Option<u32>, NetError> {
            Ok(Some(self.rules.borrow().len() as u32))
        }

        fn add(&self, rule: &FlowRule, queue: u32) -> Result<(u32, Vec<u32>), NetError> {
            assert!(self.on.get(), "many drivers take rules only so");
            let place = (0..self.free).rev().find(|place| !self.rules.borrow().contains_key(place));
            let place = place.ok_or_else(|| {
                NetError::call("ioctl", rule.to_string(), io::Error::from_raw_os_error(EINVAL))
            })?;
            self.rules.borrow_mut().insert(place, queue);
            Ok((place, vec![queue]))
        }

        fn shown(&self, place: u32) -> Result<Vec<u32>, NetError> {
            let none = || NetError::call("ioctl", "", io::Error::from_raw_os_error(ENOENT));
            self.rules.borrow().get(&place).map(|&queue| vec![queue]).ok_or_else(none)
        }

        fn delete(&self, place: u32) -> Result<(), NetError> {
            self.rules.borrow_mut().remove(&place).expect("a rule is there");
            Ok(())
        }

        fn set_ntuple(&self, on: bool) -> Result<bool, NetError> {
            if !on {
                self.rules.borrow_mut().clear();
            }
            Ok(self.on.replace(on) != on)
        }
    }

    fn rules(of: &str) -> Vec<FlowRule> {
        of.parse::<Match>().unwrap().flow_rules().unwrap()
    }

    #[test]
    fn rules_go_to_the_queues_in_turn_and_all_is_as_it_was_afterwards() {
        let table = FakeTable { free: 4, ..Default::default() };
        let three = rules("ethertype 1 or ethertype 2 or ethertype 3");
        let added = AddedRules::add(&table, &three, &[5, 7]).unwrap();
        assert_eq!(*table.rules.borrow(), BTreeMap::from([(3, 5), (2, 7), (1, 5)]));
        added.remove(&table).unwrap();
        assert!(table.rules.borrow().is_empty() && !table.on.get());
        table.on.set(true);
        AddedRules::add(&table, &three, &[5]).unwrap().remove(&table).unwrap();
        assert!(table.rules.borrow().is_empty() && table.on.get(), "it was on before");
    }

    #[test]
    fn a_rule_that_is_refused_takes_those_before_it_along() {
        let table = FakeTable { free: 1, ..Default::default() };
        let refused = AddedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[0]).unwrap_err();
        assert!(refused.to_string().contains("proto 0x0002"), "{refused}");
        assert!(table.rules.borrow().is_empty() && !table.on.get());
    }

    #[test]
    fn rules_of_others_stay() {
        let table = FakeTable { free: 4, ..Default::default() };
        let added = AddedRules::add(&table, &rules("ethertype 1 or ethertype 2"), &[5]).unwrap();
        table.rules.borrow_mut().insert(3, 9); // in the place of one
        table.rules.borrow_mut().remove(&2);
        added.remove(&table).unwrap();
        assert_eq!(*table.rules.borrow(), BTreeMap::from([(3, 9)]));
        assert!(table.on.get(), "off would have deleted it");
    }
}
