//! Offloads that falsify the packets that an XDP program sees: no VLAN tags, no checksums, or merged packets.

use std::fmt;

use pagepool::published::shown;

use super::hold::HeldOffloads;
use super::other_namespace::OtherNamespace;
use crate::error::LinkError;
use crate::ethtool::Ethtool;
use crate::ethtool::offload::Offload;
use crate::link_info::LinkInfo;
use crate::netlink::Netlink;
use crate::shell_word::shell_word;

/// Offloads of one link that falsify the packets that arrive at an interface, as XDP and AF_XDP see them.
///
/// `Display` writes a warning: what is wrong with the packets, and the `ethtool` command that fixes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffloadFault {
    /// The interface at which the packets arrive.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// The queried interface, if it gets its packets from this one: a bridge, a macvlan or a VLAN interface.
    pub above: Option<String>,
    /// The owner of the offloads.
    pub owner: OffloadOwner,
    /// The offloads that the driver can turn off.
    pub offloads: Vec<Offload>,
    /// Further offloads, which the driver keeps on.
    pub fixed: Vec<Offload>,
}

/// The owner of offloads that falsify the packets that arrive at an interface: that interface, the peer of a
/// veth, or interfaces below. `Display` writes its name for people, with escaped control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadOwner {
    pub(super) role: OwnerRole,
    /// The owner; `None` if it was not found.
    pub(super) link: Option<LinkInfo>,
    /// Its network namespace, if that is not that of the queried interface.
    pub(super) namespace: Option<OtherNamespace>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnerRole {
    /// The interface itself.
    Interface,
    /// The interface, which has no such offload: the kernel removes VLAN tags from packets before it hands
    /// them to it, and nothing turns that off. With the interfaces that it gets packets from, in its
    /// namespace.
    Stacked(Vec<LinkInfo>),
    /// The peer of a veth.
    Peer,
    /// The peer of a veth that was not found, or whose namespace cannot be entered, and why. It is assumed to
    /// have the offloads of the interface.
    HiddenPeer(String),
    /// Interfaces below this one, or its ports, whose offloads cannot be read, and why.
    HiddenBelow(String),
}

impl OffloadOwner {
    /// A peer whose offloads cannot be read. `place`: it and its namespace, if known.
    pub(super) fn hidden_peer(place: Option<(LinkInfo, OtherNamespace)>, why: String) -> Self {
        let (link, namespace) = place.unzip();
        Self { role: OwnerRole::HiddenPeer(why), link, namespace }
    }

    /// Why the offloads cannot be read, if so.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Generic)? {
    ///     assert_eq!(fault.owner.hidden(), None);
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn hidden(&self) -> Option<&str> {
        match &self.role {
            OwnerRole::HiddenPeer(why) | OwnerRole::HiddenBelow(why) => Some(why),
            _ => None,
        }
    }

    /// Whether it is an interface of the queried interface's namespace: only then its offloads can be turned
    /// off.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Generic)? {
    ///     assert!(fault.owner.is_here());
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn is_here(&self) -> bool {
        self.namespace.is_none() && self.hidden().is_none()
    }
}

impl fmt::Display for OffloadOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.link, &self.namespace) {
            (Some(link), None) => f.write_str(&shown(&link.name)),
            (Some(link), Some(namespace)) => write!(f, "{} in {namespace}", shown(&link.name)),
            _ if matches!(self.role, OwnerRole::HiddenBelow(_)) => {
                f.write_str("interfaces below, out of reach")
            }
            _ => f.write_str("a peer out of reach"),
        }
    }
}

impl OffloadFault {
    fn new(link: &LinkInfo, owner: OffloadOwner, offloads: Vec<Offload>, fixed: Vec<Offload>) -> Self {
        Self { interface: link.name.clone(), index: link.index, above: None, owner, offloads, fixed }
    }

    /// The fault of those of some offloads that are on, if any. `ethtool`: a client of the owner's namespace;
    /// for a hidden owner, of the link's.
    pub(super) fn query(
        ethtool: &Ethtool,
        link: &LinkInfo,
        owner: OffloadOwner,
        harmful: &[Offload],
    ) -> Result<Option<Self>, LinkError> {
        let queried = owner.link.as_ref().filter(|_| owner.hidden().is_none());
        let queried = &queried.unwrap_or(link).name;
        let offloads = ethtool.those(queried, harmful, |features| features.active & features.available)?;
        let on = ethtool.those(queried, harmful, |features| features.active)?;
        let fixed: Vec<_> = on.into_iter().filter(|on| !offloads.contains(on)).collect();
        let any = !offloads.is_empty() || !fixed.is_empty();
        Ok(any.then(|| Self::new(link, owner, offloads, fixed)))
    }

    /// The fault of a link whose packets lose their VLAN tags in the kernel.
    pub(super) fn without_tags(link: &LinkInfo, below: Vec<LinkInfo>) -> Self {
        let (role, link_above) = (OwnerRole::Stacked(below), Some(link.clone()));
        let owner = OffloadOwner { role, link: link_above, namespace: None };
        Self::new(link, owner, Vec::new(), vec![Offload::RxVlan, Offload::RxOuterVlan])
    }

    /// The fault of a link below which offloads cannot be read.
    pub(super) fn hidden_below(link: &LinkInfo, why: &str) -> Self {
        let role = OwnerRole::HiddenBelow(why.into());
        let owner = OffloadOwner { role, link: None, namespace: None };
        Self::new(link, owner, Vec::new(), Offload::OF_SENDER.to_vec())
    }

    /// This fault, for the link above. If that link's program does not run below, faults of VLAN tags are
    /// left out: the tags are removed before it anyway, or are its own.
    pub(super) fn below(mut self, above: &LinkInfo, runs_below: bool) -> Option<Self> {
        self.above = Some(above.name.clone());
        if !runs_below {
            let is_other = |offload: &Offload| !Offload::OF_TAGS.contains(offload);
            self.offloads.retain(is_other);
            self.fixed.retain(is_other);
        }
        (!self.offloads.is_empty() || !self.fixed.is_empty()).then_some(self)
    }

    /// This fault, seen from another network namespace than its own.
    pub(super) fn seen_from_outside(mut self, from: &OtherNamespace) -> Self {
        if self.owner.is_here() {
            self.owner.namespace = Some(from.clone());
        }
        self
    }

    /// This fault, with the current names of interfaces. Those of other namespaces stay, and that of a hidden
    /// owner.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     assert_eq!(fault.clone().named_now(&mut netlink).to_string(), fault.to_string());
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn named_now(mut self, netlink: &mut Netlink) -> Self {
        if self.owner.is_here() {
            let below = match &mut self.owner.role {
                OwnerRole::Stacked(below) => &mut below[..],
                _ => &mut [],
            };
            below.iter_mut().chain(&mut self.owner.link).for_each(|link| link.name = netlink.name_now(link));
        } else if self.above.is_some() {
            return self; // the interface may be elsewhere, too
        }
        if let Some(now) = netlink.link_at(self.index).ok().flatten() {
            self.interface = now.name;
        }
        self
    }

    /// The command that turns them off. For a veth's peer in another network namespace, it enters that
    /// namespace. If that is unknown, run the command at both ends, each with its own name. `None` if all are
    /// fixed.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// for link in netlink.links()? {
    ///     for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Generic)? {
    ///         let command = fault.command().unwrap_or_default();
    ///         assert!(command.is_empty() || command.contains("ethtool -K "), "{command}");
    ///     }
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn command(&self) -> Option<String> {
        let name = self.owner.link.as_ref().map_or(&self.interface, |link| &link.name);
        let prefix = self.owner.namespace.as_ref().map_or_else(String::new, OtherNamespace::prefix);
        let mut offloads = self.offloads.clone();
        offloads.sort_by_key(|of| *of != Offload::TxChecksum); // the others depend on it
        let off: Vec<String> = offloads.iter().map(|of| format!("{} off", of.keyword())).collect();
        (!off.is_empty()).then(|| format!("{prefix}ethtool -K {} {}", shell_word(name), off.join(" ")))
    }

    /// What is wrong with the packets, without the [`command`](Self::command) that fixes it.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     assert!(fault.to_string().starts_with(&fault.description()));
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn description(&self) -> String {
        let Self { interface, owner, offloads, fixed, .. } = self;
        let interface = shown(interface);
        let how = effects(&[offloads.as_slice(), fixed].concat());
        let above = self.above.iter().map(|above| format!("below {}: ", shown(above))).collect::<String>();
        let text = match &owner.role {
            OwnerRole::Interface => format!("packets arrive at {owner} {how}"),
            OwnerRole::Stacked(below) => return lost_tags(owner, below),
            OwnerRole::HiddenBelow(why) => format!(
                "packets may arrive at {interface} {how}: the offloads of the interfaces below it cannot be \
                 read: {why}"
            ),
            OwnerRole::Peer => format!("packets from {interface}'s peer {owner} arrive {how}"),
            OwnerRole::HiddenPeer(why) => format!(
                "packets from {interface}'s peer arrive {how}, if its offloads equal those of {interface}. \
                 They cannot be read: {why}"
            ),
        };
        let of_driver = !fixed.is_empty() && !matches!(owner.role, OwnerRole::HiddenBelow(_));
        let stays = of_driver.then(|| format!(". The driver cannot turn {} off", names(fixed)));
        above + &text + &stays.unwrap_or_default()
    }

    /// How to use the [`command`](Self::command): "Run", and where.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     assert!(fault.instruction().starts_with("Run"));
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn instruction(&self) -> &'static str {
        match &self.owner {
            OffloadOwner { role: OwnerRole::HiddenPeer(_), link: None, .. } => {
                "Run at both ends, each with its own name"
            }
            _ => "Run",
        }
    }

    /// Turns off the offloads that are not fixed, until the value is dropped: see [`HeldOffloads`]. `None` if
    /// they belong to no interface of the calling thread's network namespace, or are all fixed: then print
    /// the [`command`](Self::command), if there is one. Requires CAP_NET_ADMIN.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// let faults = offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)?;
    /// let held = faults.iter().map(|fault| fault.hold_off()).collect::<Result<Vec<_>, _>>()?;
    /// // Open AF_XDP sockets, receive and send; close them before `held` is dropped.
    /// drop(held);
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn hold_off(&self) -> Result<Option<HeldOffloads>, LinkError> {
        match &self.owner.link {
            Some(link) if self.owner.is_here() && !self.offloads.is_empty() => {
                HeldOffloads::new(link, &self.offloads).map(Some)
            }
            _ => Ok(None),
        }
    }
}

const MOST_NAMED: usize = 4;

/// The text for a link whose packets lose their VLAN tags in the kernel, which nothing turns off.
fn lost_tags(owner: &OffloadOwner, below: &[LinkInfo]) -> String {
    let named: Vec<_> = below.iter().take(MOST_NAMED).map(|link| shown(&link.name)).collect();
    let instead = if named.is_empty() { "an interface below it".into() } else { named.join(" or ") };
    let kind = owner.link.as_ref().and_then(|link| link.kind.as_deref()).unwrap_or_default();
    let kind = shown(kind);
    let place = owner.namespace.as_ref().map_or_else(String::new, |namespace| format!(" in {namespace}"));
    format!(
        "packets arrive at {owner} without VLAN tags, and are sent back without them: the kernel removes \
         tags before it passes packets to an interface of kind {kind}. This cannot be turned off: use \
         {instead}{place}"
    )
}

/// How packets arrive because of these offloads.
fn effects(offloads: &[Offload]) -> String {
    let longer = |of: &Offload| *of != Offload::TxChecksum && !Offload::OF_TAGS.contains(of);
    let lacking = [("checksums", &[Offload::TxChecksum][..]), ("VLAN tags", &Offload::OF_TAGS[..])];
    let lacks = |(_, of): &&(_, &[Offload])| offloads.iter().any(|offload| of.contains(offload));
    let (longer, lacking) = (offloads.iter().any(longer), lacking.iter().filter(lacks));
    let lacking: Vec<_> = lacking.map(|(what, _)| *what).collect();
    match (lacking.join(" and "), longer) {
        (none, _) if none.is_empty() => "longer than the MTU".into(),
        (lacking, true) => format!("without {lacking}, or longer than the MTU"),
        (lacking, false) => format!("without {lacking}"),
    }
}

fn names(offloads: &[Offload]) -> String {
    offloads.iter().map(|offload| offload.name()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for OffloadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description())?;
        self.command().map_or(Ok(()), |command| write!(f, ". {}: {command}", self.instruction()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;

    #[test]
    fn a_fault_says_what_is_wrong_and_what_helps() {
        let lo = Netlink::open().unwrap().link("lo").unwrap();
        let mut fault = OffloadFault {
            interface: "lo".into(),
            index: lo.index,
            above: None,
            owner: OffloadOwner { role: OwnerRole::Interface, link: Some(lo), namespace: None },
            offloads: vec![Offload::Lro, Offload::RxVlan],
            fixed: vec![Offload::RxOuterVlan],
        };
        assert_eq!(
            fault.to_string(),
            "packets arrive at lo without VLAN tags, or longer than the MTU. The driver cannot turn \
             rx-vlan-stag-hw-parse off. Run: ethtool -K lo lro off rxvlan off"
        );
        fault.offloads.clear();
        assert_eq!(fault.command(), None);
        assert!(fault.hold_off().unwrap().is_none(), "the driver keeps it on");
        let owner = OffloadOwner::hidden_peer(None, "nobody knows it".into());
        let hidden = OffloadFault { owner, ..fault };
        assert!(hidden.hold_off().unwrap().is_none(), "nobody knows where it is");
        let offloads = vec![Offload::Tso, Offload::Gso, Offload::TxChecksum];
        let hidden = OffloadFault { offloads, fixed: Vec::new(), ..hidden };
        assert_eq!(
            hidden.to_string(),
            "packets from lo's peer arrive without checksums, or longer than the MTU, if its offloads equal \
             those of lo. They cannot be read: nobody knows it. Run at both ends, each with its own name: \
             ethtool -K lo tx off tso off gso off"
        );
    }

    #[test]
    fn an_interface_with_a_hidden_peer_has_its_current_name() {
        let mut netlink = Netlink::open().unwrap();
        let fault = OffloadFault {
            interface: "before".into(),
            index: netlink.link("lo").unwrap().index,
            above: None,
            owner: OffloadOwner::hidden_peer(None, "nobody knows it".into()),
            offloads: vec![Offload::Gso],
            fixed: Vec::new(),
        };
        let below = OffloadFault { above: Some("top".into()), ..fault.clone() };
        let [now, unknown] = [fault, below].map(|fault| fault.named_now(&mut netlink).command().unwrap());
        assert_eq!([&*now, &*unknown], ["ethtool -K lo gso off", "ethtool -K before gso off"]);
    }

    #[test]
    fn tag_offloads_are_no_fault_if_the_program_runs_above() {
        let lo = Netlink::open().unwrap().link("lo").unwrap();
        let fault = OffloadFault {
            interface: "lo".into(),
            index: lo.index,
            above: None,
            owner: OffloadOwner { role: OwnerRole::Peer, link: Some(lo.clone()), namespace: None },
            offloads: vec![Offload::TxVlan, Offload::Gso],
            fixed: vec![Offload::TxOuterVlan],
        };
        let above = LinkInfo { name: "top\u{202e}".into(), ..lo };
        let native = fault.clone().below(&above, true).unwrap();
        let said =
            "below top\\u{202e}: packets from lo's peer lo arrive without VLAN tags, or longer than the MTU";
        assert!(native.to_string().starts_with(said), "{native}");
        let generic = fault.clone().below(&above, false).unwrap();
        assert_eq!((&generic.offloads[..], &generic.fixed[..]), (&[Offload::Gso][..], &[][..]));
        assert_eq!(OffloadFault { offloads: vec![Offload::TxVlan], ..fault }.below(&above, false), None);
    }

    #[test]
    fn a_name_that_others_chose_commands_neither_shell_nor_terminal() {
        let lo = Netlink::open().unwrap().link("lo").unwrap();
        let peer = |name: &str| OffloadFault {
            interface: "lo".into(),
            index: lo.index,
            above: None,
            owner: OffloadOwner {
                role: OwnerRole::Peer,
                link: Some(LinkInfo { name: name.into(), ..lo.clone() }),
                namespace: None,
            },
            offloads: vec![Offload::Gso],
            fixed: Vec::new(),
        };
        assert_eq!(peer("a;reboot;#").command().unwrap(), "ethtool -K 'a;reboot;#' gso off");
        let fault = peer("a\u{1b}[2J");
        assert!(!fault.to_string().contains('\u{1b}') && !fault.owner.to_string().contains('\u{1b}'));
        assert!(fault.description().contains("peer a\\u{1b}[2J arrive "), "{}", fault.description());
    }
}
