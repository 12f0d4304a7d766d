//! Interfaces that get packets from others: a macvlan, a VLAN interface, a bridge. The offloads of the
//! interfaces below, and of their peers, count.

use super::other_namespace::OtherNamespace;
use crate::error::LinkError;
use crate::ethtool::Ethtool;
use crate::link_info::{LinkElsewhere, LinkInfo};
use crate::netlink::Netlink;

/// Kinds on top of one interface, which `IFLA_LINK` names.
const STANDING: [&str; 5] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];
const MASTERS: [&str; 3] = ["bridge", "bond", "team"];
const MOST_PORTS: usize = 16;

/// Whether other interfaces hand packets to this one.
pub(super) fn is_stacked(link: &LinkInfo) -> bool {
    is_one_of(link, &STANDING) || takes_tags(link)
}

/// Whether the kernel removes VLAN tags from packets before it hands them over (net/core/dev.c, v7.3: in
/// `__netif_receive_skb_core` `skb_vlan_untag` comes before `rx_handler`). For a VLAN interface, only its own
/// tag is removed.
pub(super) fn takes_tags(link: &LinkInfo) -> bool {
    is_one_of(link, &STANDING[1..]) || is_one_of(link, &MASTERS) || is_one_of(link, &["openvswitch"])
}

/// Whether a native program of this interface runs in the drivers below it. Other stacked kinds have no
/// native mode.
pub(super) fn has_native(link: &LinkInfo) -> bool {
    is_one_of(link, &["bond"])
}

fn is_one_of(link: &LinkInfo, kinds: &[&str]) -> bool {
    link.kind.as_deref().is_some_and(|kind| kinds.contains(&kind))
}

#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) namespace: OtherNamespace,
    pub(super) netlink: Netlink,
    pub(super) ethtool: Ethtool,
}

impl Elsewhere {
    /// Enters a namespace to open them.
    pub(super) fn open(namespace: OtherNamespace) -> Result<Self, LinkError> {
        let (netlink, ethtool) = namespace.run(|| Ok((Netlink::open()?, Ethtool::open()?)))?;
        Ok(Self { namespace, netlink, ethtool })
    }
}

/// An interface, and clients of its network namespace, if that is another one.
pub(super) type Lower = (LinkInfo, Option<Box<Elsewhere>>);

/// The interfaces directly below one of the client's namespace, and why others are left out. The error says
/// why none can be queried.
pub(super) fn lowers(netlink: &mut Netlink, link: &LinkInfo) -> Result<(Vec<Lower>, Option<String>), String> {
    let lower = match (link.lower_elsewhere, link.lower) {
        _ if is_one_of(link, &MASTERS) => return ports(netlink, link),
        _ if !is_one_of(link, &STANDING) => None,
        (Some(at), _) => lower_elsewhere(netlink, at)?,
        (None, Some(at)) => in_words(netlink.link_at(at))?.map(|lower| (lower, None)),
        (None, None) => None,
    };
    Ok((lower.into_iter().collect(), None))
}

fn ports(netlink: &mut Netlink, link: &LinkInfo) -> Result<(Vec<Lower>, Option<String>), String> {
    let ports = in_words(netlink.links())?.into_iter().filter(|port| port.master == Some(link.index));
    let mut ports: Vec<Lower> = ports.map(|port| (port, None)).collect();
    let more = ports.len().saturating_sub(MOST_PORTS);
    ports.truncate(MOST_PORTS);
    let why = (more > 0).then(|| format!("it has {more} ports more than the limit of {MOST_PORTS}"));
    Ok((ports, why))
}

fn lower_elsewhere(netlink: &mut Netlink, at: LinkElsewhere) -> Result<Option<Lower>, String> {
    let mut there = in_words(Elsewhere::open(OtherNamespace::find(netlink, at.namespace)?))?;
    let lower = in_words(there.netlink.link_at(at.index))?;
    Ok(lower.map(|lower| (lower, Some(Box::new(there)))))
}

fn in_words<T>(result: Result<T, LinkError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
