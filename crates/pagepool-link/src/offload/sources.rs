//! Finds the offloads that falsify what arrives at a link: its own, its veth peer's, and those of the links
//! below.

use super::fault::{OffloadFault, OffloadOwner, OwnerRole};
use super::other_namespace::OtherNamespace;
use super::stack::{self, Elsewhere, Lower};
use crate::error::LinkError;
use crate::ethtool::Ethtool;
use crate::ethtool::offload::Offload;
use crate::link_info::{LinkElsewhere, LinkInfo, XdpMode};
use crate::netlink::Netlink;

/// The owners of offloads that may falsify what arrives at a link: found once, queried any number of times.
///
/// A veth's peer may be in another network namespace. It is searched among the names of `ip netns` and the
/// namespaces of processes, and entered briefly, by a separate thread. That requires CAP_SYS_ADMIN, and
/// CAP_SYS_PTRACE for processes of other users, or with more capabilities. [`faults`](Self::faults) requires
/// neither. This value keeps that namespace alive. The interface below a macvlan or a VLAN interface may be
/// in another namespace, too.
#[derive(Debug)]
pub struct OffloadSources {
    link: LinkInfo,
    peer: Option<VethPeer>,
    below: Vec<Below>,
    /// Why other links below cannot be queried, if so.
    hidden: Option<String>,
}

/// A link below another, and clients of its network namespace, if that is another one.
#[derive(Debug)]
struct Below {
    sources: OffloadSources,
    elsewhere: Option<Box<Elsewhere>>,
}

const DEEPEST: usize = 8;

#[derive(Debug)]
enum VethPeer {
    Here(Option<u32>),
    /// Its index there, and clients of that namespace.
    Elsewhere(u32, Box<Elsewhere>),
    /// The owner in its faults.
    Hidden(Box<OffloadOwner>),
}

/// The offloads that falsify what arrives at a link of the clients' namespace, for a program in this mode.
/// Empty if XDP sees packets as they are on the wire.
///
/// A veth's peer leaves work to hardware that a veth lacks: it sends packets without VLAN tags and checksums,
/// and packets longer than the MTU. A network card removes VLAN tags, or merges packets, before XDP sees
/// them; in generic mode the kernel merges, too. For a bridge, a macvlan and similar kinds, the offloads of
/// the links below count, and in generic mode VLAN tags are lost. [`OffloadSources`] says where a veth's peer
/// is searched.
///
/// ```
/// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
/// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
/// let link = netlink.link("lo")?;
/// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
///     eprintln!("{fault}");
///     assert!(!fault.offloads.is_empty() || !fault.fixed.is_empty());
/// }
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
pub fn offload_faults(
    netlink: &mut Netlink,
    ethtool: &Ethtool,
    link: &LinkInfo,
    mode: XdpMode,
) -> Result<Vec<OffloadFault>, LinkError> {
    OffloadSources::find(netlink, link).faults(netlink, ethtool, mode)
}

impl OffloadSources {
    /// Finds the owners for a link of the client's namespace.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, OffloadSources, XdpMode};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// let mut sources = OffloadSources::find(&mut netlink, &link);
    /// // Give up CAP_SYS_ADMIN here.
    /// for fault in sources.faults(&mut netlink, &ethtool, XdpMode::Native)? {
    ///     eprintln!("{fault}");
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn find(netlink: &mut Netlink, link: &LinkInfo) -> Self {
        Self::below(netlink, link, 0)
    }

    /// Finds the owners for a link below `depth` others.
    fn below(netlink: &mut Netlink, link: &LinkInfo, depth: usize) -> Self {
        let is_veth = link.kind.as_deref() == Some("veth");
        let peer = is_veth.then(|| match link.lower_elsewhere {
            Some(at) => VethPeer::elsewhere(netlink, at),
            None => VethPeer::Here(link.lower),
        });
        let lowers = match stack::is_stacked(link) && depth == DEEPEST {
            false => stack::lowers(netlink, link),
            true => Err(format!("it is below {DEEPEST} other interfaces, the limit")),
        };
        let (lowers, hidden) = lowers.unwrap_or_else(|why| (Vec::new(), Some(why)));
        let one = |(lower, mut elsewhere): Lower| {
            let client = elsewhere.as_mut().map_or(&mut *netlink, |there| &mut there.netlink);
            Below { sources: Self::below(client, &lower, depth + 1), elsewhere }
        };
        Self { link: link.clone(), peer, below: lowers.into_iter().map(one).collect(), hidden }
    }

    /// The current faults, for a program in this mode: see [`offload_faults`]. The clients are of the link's
    /// namespace.
    ///
    /// ```
    /// use pagepool_link::{Ethtool, Netlink, OffloadSources, XdpMode};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("lo")?;
    /// let mut sources = OffloadSources::find(&mut netlink, &link);
    /// let native = sources.faults(&mut netlink, &ethtool, XdpMode::Native)?;
    /// assert!(sources.faults(&mut netlink, &ethtool, XdpMode::Generic)?.len() >= native.len());
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn faults(
        &mut self,
        netlink: &mut Netlink,
        ethtool: &Ethtool,
        mode: XdpMode,
    ) -> Result<Vec<OffloadFault>, LinkError> {
        let (link, is_veth) = (&self.link, self.peer.is_some());
        if stack::is_stacked(link) {
            return self.faults_of_stack(netlink, ethtool, mode);
        }
        let mut faults = Vec::new();
        if let Some(peer) = &mut self.peer {
            faults.extend(peer.fault(netlink, ethtool, link)?);
        }
        let mut before_us = if mode == XdpMode::Generic { vec![Offload::Gro] } else { Vec::new() };
        // A veth removes no tag from what arrives, and merges nothing itself, whatever offloads are on.
        before_us.extend(Offload::OF_RECEIVER.into_iter().filter(|_| !is_veth));
        let own = OffloadOwner { role: OwnerRole::Interface, link: Some(link.clone()), namespace: None };
        faults.extend(OffloadFault::query(ethtool, link, own, &before_us)?);
        Ok(faults)
    }

    /// The faults of a link that gets its packets from others: theirs.
    fn faults_of_stack(
        &mut self,
        netlink: &mut Netlink,
        ethtool: &Ethtool,
        mode: XdpMode,
    ) -> Result<Vec<OffloadFault>, LinkError> {
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
    /// Finds the peer in another namespace, and enters it.
    fn elsewhere(netlink: &mut Netlink, at: LinkElsewhere) -> Self {
        let namespace = match OtherNamespace::find(netlink, at.namespace) {
            Ok(namespace) => namespace,
            Err(why) => return Self::Hidden(OffloadOwner::hidden_peer(None, why).into()),
        };
        match Elsewhere::open(namespace.clone()) {
            Ok(there) => Self::Elsewhere(at.index, Box::new(there)),
            Err(error) => {
                let link = netlink.link_elsewhere(at).ok().flatten();
                let place = link.map(|link| (link, namespace));
                Self::Hidden(OffloadOwner::hidden_peer(place, error.to_string()).into())
            }
        }
    }

    /// The fault of its offloads that falsify what it sends, if any is on.
    fn fault(
        &mut self,
        netlink: &mut Netlink,
        ethtool: &Ethtool,
        link: &LinkInfo,
    ) -> Result<Option<OffloadFault>, LinkError> {
        let (there, namespace, ethtool) = match self {
            Self::Here(index) => (index.map_or(Ok(None), |index| netlink.link_at(index))?, None, ethtool),
            Self::Elsewhere(index, clients) => {
                let namespace = clients.namespace.clone();
                (clients.netlink.link_at(*index)?, Some(namespace), &clients.ethtool)
            }
            Self::Hidden(owner) => {
                return OffloadFault::query(ethtool, link, (**owner).clone(), &Offload::OF_SENDER);
            }
        };
        let owner = match there {
            Some(link) => OffloadOwner { role: OwnerRole::Peer, link: Some(link), namespace },
            None => OffloadOwner::hidden_peer(None, "it was moved or removed".into()),
        };
        OffloadFault::query(ethtool, link, owner, &Offload::OF_SENDER)
    }
}
