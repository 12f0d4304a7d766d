//! Rules of a card for single flows (ntuple): held for a while, and deleted again.

use super::claim::{Claim, Subject};
use super::placed_rules::{CardRules, PlacedRules};
use super::rule::FlowRule;
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::LinkInfo;
use crate::link::netlink::Netlink;

/// A card that has rules which bring packets to some of its queues, until this is dropped.
///
/// The rules are behind those that are there, which go first. A card that has a rule for the same packets is
/// refused: some drivers would replace that one. A rule that somebody else put in the place of one meanwhile
/// stays. If the card takes no rule while its feature `ntuple` is off, that is on meanwhile, and off again at
/// the end, unless somebody else has rules then: off deletes all. Changing it makes some cards restart. One
/// per card: a second one is refused, also in another process. The link is found again if it was renamed.
/// Some drivers drop all rules when the link goes down: [`look`](Self::look) puts them back. A process that
/// is killed, or that aborts, drops nothing: [`undo`](Self::undo) says what deletes the rules by hand.
///
/// ```no_run
/// // It changes a card of the machine that runs this.
/// use pagepool_net::Match;
/// use pagepool_net::link::{HeldFlowRules, Netlink};
/// let link = Netlink::open()?.link("eth0")?;
/// let rules = "udp dst port 4789".parse::<Match>()?.flow_rules()?;
/// let mut held = HeldFlowRules::add(&link, &rules, &[2, 3])?;
/// eprintln!("if this process is killed: {}", held.undo());
/// held.restore()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HeldFlowRules {
    netlink: Netlink,
    ethtool: Ethtool,
    link: LinkInfo,
    placed: PlacedRules,
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
    /// of this card, or it has none, or one of these already, or takes not all of these, or has not these
    /// queues. Where that fails, too, the error is [`NetError::FlowRulesStay`].
    pub fn add(link: &LinkInfo, rules: &[FlowRule], queues: &[u32]) -> Result<Self, NetError> {
        let (netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
        has_rules(&ethtool, link)?;
        let claim = Claim::take(Subject::Rules, link)?;
        let there = ethtool.channels(&link.name)?.map_or(link.rx_queues, |channels| channels.rx);
        if queues.is_empty() || queues.iter().any(|&queue| queue >= there) {
            let value = format!("{queues:?} of {there}");
            return Err(NetError::OutOfRange { field: "queues", value, range: "queues of the card" });
        }
        let placed = PlacedRules::add(&CardRules { ethtool: &ethtool, link: &link.name }, rules, queues);
        let placed = placed.map_err(|refused| refused.into_error(&link.name))?;
        Ok(Self { netlink, ethtool, link: link.clone(), placed, _claim: claim })
    }

    /// The commands that delete the rules by hand. The one that turns `ntuple` off, which deletes those of
    /// others, too, stands behind a `#`. Asks for the name that the link has now.
    pub fn undo(&mut self) -> String {
        self.placed.undo(&self.netlink.name_now(&self.link))
    }

    /// Puts back the rules that are gone, as some drivers drop them when the link goes down, and says how
    /// many. Nothing while the link is down. An error is the first of those that were not put back: the next
    /// call tries again. It requires CAP_NET_ADMIN if there is one to put back; two system calls, and one for
    /// each rule.
    pub fn look(&mut self) -> Result<usize, NetError> {
        match self.netlink.link_at(self.link.index)? {
            Some(link) if link.is_up => {
                self.placed.put_back(&CardRules { ethtool: &self.ethtool, link: &link.name })
            }
            _ => Ok(0),
        }
    }

    /// Deletes the rules now, and says why not if that fails. A link that was removed is no error.
    pub fn restore(mut self) -> Result<(), NetError> {
        let result = self.remove();
        self.placed = PlacedRules::default(); // once is enough
        result
    }

    fn remove(&mut self) -> Result<(), NetError> {
        if self.placed.is_empty() {
            return Ok(());
        }
        let Some(link) = self.netlink.link_at(self.link.index)? else { return Ok(()) };
        self.placed.remove(&CardRules { ethtool: &self.ethtool, link: &link.name })
    }
}

impl Drop for HeldFlowRules {
    fn drop(&mut self) {
        let _ = self.remove(); // `restore` says why not
    }
}

fn has_rules(ethtool: &Ethtool, link: &LinkInfo) -> Result<(), NetError> {
    match ethtool.flow_rules(&link.name)? {
        Some(_) => Ok(()),
        None => Err(NetError::NoFlowRules { link: link.name.clone() }),
    }
}
