//! Where the offloads are that falsify what arrives at a link: its own, those of a veth's other end, and
//! those of the links below.

use super::fault::{HiddenPeer, OffloadFault, OffloadOwner};
use super::kind::Offload;
use super::other_namespace::OtherNamespace;
use super::stack::{self, Elsewhere, Lower};
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::{LinkElsewhere, LinkInfo, XdpMode};
use crate::link::netlink::Netlink;

/// Whose offloads may falsify what arrives at a link: looked for once, asked as often as one likes.
///
/// The other end of a veth may be in another network namespace. It is looked for among the names of
/// `ip netns` and the namespaces of processes, and entered for a moment, by a thread of its own. That
/// requires CAP_SYS_ADMIN, and CAP_SYS_PTRACE to look at processes of other users, or with more capabilities;
/// asking requires neither. As long as this is there, it keeps that namespace alive. So may the interface
/// that a macvlan or a VLAN interface stands on.
#[derive(Debug)]
pub struct OffloadSources {
    link: LinkInfo,
    peer: Option<VethPeer>,
    below: Vec<Below>,
    /// Why others below it cannot be asked.
    hidden: Vec<String>,
}

/// A link below another, and the clients of its network namespace if that is another one.
#[derive(Debug)]
struct Below {
    sources: OffloadSources,
    elsewhere: Option<Box<Elsewhere>>,
}

/// Most links that stand on each other.
const DEEPEST: usize = 8;

/// The other end of a veth.
#[derive(Debug)]
enum VethPeer {
    Here(Option<u32>),
    /// Its number there, and clients of that namespace.
    Elsewhere(u32, Box<Elsewhere>),
    Hidden(HiddenPeer),
}

/// The offloads that falsify what arrives at a link of the clients' namespace, for a program in this mode.
/// An empty list: XDP sees packets as a wire would carry them.
///
/// A veth's other end leaves work to hardware that a veth does not have: it sends packets without VLAN tags
/// and checksums, and longer ones than the MTU. A network card takes VLAN tags out of packets, or merges
/// packets, before XDP sees them; in generic mode the kernel merges too. [`OffloadSources`] says where a
/// veth's other end is looked for. At a bridge, a macvlan and their like what the links below do counts, and
/// in generic mode VLAN tags are lost.
///
/// ```
/// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
/// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
/// let link = netlink.link("lo")?;
/// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
///     eprintln!("{fault}");
///     assert!(!fault.offloads.is_empty() || !fault.fixed.is_empty());
/// }
/// # Ok::<(), pagepool_net::link::NetError>(())
/// ```
pub fn offload_faults(
    netlink: &mut Netlink,
    ethtool: &Ethtool,
    link: &LinkInfo,
    mode: XdpMode,
) -> Result<Vec<OffloadFault>, NetError> {
    OffloadSources::of(netlink, link).faults(netlink, ethtool, mode)
}

impl OffloadSources {
    /// Of a link of the client's namespace.
    ///
    /// ```
    /// use pagepool_net::link::{Ethtool, Netlink, OffloadSources, XdpMode};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// let mut sources = OffloadSources::of(&mut netlink, &link);
    /// // Give up CAP_SYS_ADMIN here.
    /// for fault in sources.faults(&mut netlink, &ethtool, XdpMode::Native)? {
    ///     eprintln!("{fault}");
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn of(netlink: &mut Netlink, link: &LinkInfo) -> Self {
        Self::below(netlink, link, 0)
    }

    /// The same of a link that so many stand on.
    fn below(netlink: &mut Netlink, link: &LinkInfo, depth: usize) -> Self {
        let is_veth = link.kind.as_deref() == Some("veth");
        let peer = is_veth.then(|| match link.lower_elsewhere {
            Some(at) => VethPeer::elsewhere(netlink, at),
            None => VethPeer::Here(link.lower),
        });
        let (lowers, hidden) = match stack::is_stacked(link) && depth == DEEPEST {
            false => stack::lowers(netlink, link),
            true => (Vec::new(), vec![format!("{DEEPEST} interfaces above it were looked at, the limit")]),
        };
        let one = |(lower, mut elsewhere): Lower| {
            let client = elsewhere.as_mut().map_or(&mut *netlink, |there| &mut there.netlink);
            Below { sources: Self::below(client, &lower, depth + 1), elsewhere }
        };
        Self { link: link.clone(), peer, below: lowers.into_iter().map(one).collect(), hidden }
    }

    /// The faults now, for a program in this mode, by clients of the link's namespace: see
    /// [`offload_faults`].
    ///
    /// ```
    /// use pagepool_net::link::{Ethtool, Netlink, OffloadSources, XdpMode};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// let mut sources = OffloadSources::of(&mut netlink, &link);
    /// let native = sources.faults(&mut netlink, &ethtool, XdpMode::Native)?;
    /// assert!(sources.faults(&mut netlink, &ethtool, XdpMode::Generic)?.len() >= native.len());
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn faults(
        &mut self,
        netlink: &mut Netlink,
        ethtool: &Ethtool,
        mode: XdpMode,
    ) -> Result<Vec<OffloadFault>, NetError> {
        let (link, is_veth) = (&self.link, self.peer.is_some());
        if stack::is_stacked(link) {
            return self.faults_of_stack(netlink, ethtool, mode);
        }
        let mut faults = Vec::new();
        if let Some(peer) = &mut self.peer {
            faults.extend(peer.fault(netlink, ethtool, link)?);
        }
        let mut before_us = if mode == XdpMode::Generic { vec![Offload::Gro] } else { Vec::new() };
        // A veth takes no tag out of what arrives, and merges nothing by itself, whatever it has on.
        before_us.extend(Offload::OF_RECEIVER.into_iter().filter(|_| !is_veth));
        faults.extend(OffloadFault::of(ethtool, link, OffloadOwner::Interface(link.clone()), &before_us)?);
        Ok(faults)
    }

    /// Of a link that others hand packets to: theirs, for it receives nothing itself.
    fn faults_of_stack(
        &mut self,
        netlink: &mut Netlink,
        ethtool: &Ethtool,
        mode: XdpMode,
    ) -> Result<Vec<OffloadFault>, NetError> {
        let runs_below = mode != XdpMode::Generic && stack::has_native(&self.link);
        let mut faults = Vec::new();
        if mode == XdpMode::Generic && stack::takes_tags(&self.link) {
            let here = self.below.iter().filter(|below| below.elsewhere.is_none());
            let below = here.map(|below| below.sources.link.clone()).collect();
            faults.push(OffloadFault::without_tags(&self.link, below));
        }
        faults.extend(self.hidden.iter().map(|why| OffloadFault::hidden_below(&self.link, why)));
        for Below { sources, elsewhere } in &mut self.below {
            let found = match elsewhere {
                None => sources.faults(netlink, ethtool, mode)?,
                Some(there) => {
                    let found = sources.faults(&mut there.netlink, &there.ethtool, mode)?;
                    found.into_iter().map(|fault| fault.seen_from_outside(&there.namespace)).collect()
                }
            };
            let found = found.into_iter().filter_map(|fault| fault.below(&self.link, runs_below));
            faults.extend(found);
        }
        Ok(faults)
    }
}

impl VethPeer {
    /// In another namespace, which is entered if it is found.
    fn elsewhere(netlink: &mut Netlink, at: LinkElsewhere) -> Self {
        let namespace = match OtherNamespace::find(netlink, at.namespace) {
            Ok(namespace) => namespace,
            Err(why) => return Self::Hidden(HiddenPeer { place: None, why }),
        };
        match Elsewhere::open(namespace.clone()) {
            Ok(there) => Self::Elsewhere(at.index, Box::new(there)),
            Err(error) => {
                let name = netlink.link_elsewhere(at).ok().map(|link| link.name);
                let place = name.map(|name| (name, namespace));
                Self::Hidden(HiddenPeer { place, why: error.to_string() })
            }
        }
    }

    /// Those of its offloads that falsify what it sends, if any is on.
    fn fault(
        &mut self,
        netlink: &mut Netlink,
        ethtool: &Ethtool,
        link: &LinkInfo,
    ) -> Result<Option<OffloadFault>, NetError> {
        let (owner, ethtool) = match self {
            Self::Here(index) => {
                let there = index.map_or(Ok(None), |index| netlink.link_at(index))?;
                (there.map(OffloadOwner::Peer), ethtool)
            }
            Self::Elsewhere(index, clients) => {
                let there = clients.netlink.link_at(*index)?;
                let namespace = clients.namespace.clone();
                (there.map(|link| OffloadOwner::PeerElsewhere { link, namespace }), &clients.ethtool)
            }
            Self::Hidden(hidden) => (Some(OffloadOwner::HiddenPeer(hidden.clone())), ethtool),
        };
        let gone = || HiddenPeer { place: None, why: "it is not where it was".into() };
        let owner = owner.unwrap_or_else(|| OffloadOwner::HiddenPeer(gone()));
        OffloadFault::of(ethtool, link, owner, &Offload::OF_SENDER)
    }
}
