//! Where the offloads are that falsify what arrives at a link: its own, and those of a veth's other end.

use super::fault::{HiddenPeer, OffloadFault, OffloadOwner};
use super::kind::Offload;
use super::other_namespace::OtherNamespace;
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::{LinkElsewhere, LinkInfo, XdpMode};
use crate::link::netlink::Netlink;

/// Whose offloads may falsify what arrives at a link: looked for once, asked as often as one likes.
///
/// The other end of a veth may be in another network namespace. It is looked for among the names of
/// `ip netns` and the namespaces of processes, and entered for a moment, by a thread of its own. That
/// requires CAP_SYS_ADMIN, and CAP_SYS_PTRACE to look at processes of other users, or with more capabilities;
/// asking requires neither. As long as this is there, it keeps that namespace alive.
#[derive(Debug)]
pub struct OffloadSources {
    link: LinkInfo,
    peer: Option<VethPeer>,
}

/// The other end of a veth.
#[derive(Debug)]
enum VethPeer {
    Here(Option<u32>),
    Elsewhere(Box<PeerClients>),
    Hidden(HiddenPeer),
}

/// Clients of the namespace that another end is in.
#[derive(Debug)]
struct PeerClients {
    index: u32,
    namespace: OtherNamespace,
    netlink: Netlink,
    ethtool: Ethtool,
}

/// The offloads that falsify what arrives at a link of the clients' namespace, for a program in this mode.
/// An empty list: XDP sees packets as a wire would carry them.
///
/// A veth's other end leaves work to hardware that a veth does not have: it sends packets without VLAN tags
/// and checksums, and longer ones than the MTU. A network card takes VLAN tags out of packets, or merges
/// packets, before XDP sees them; in generic mode the kernel merges too. [`OffloadSources`] says where a
/// veth's other end is looked for.
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
        let is_veth = link.kind.as_deref() == Some("veth");
        let peer = is_veth.then(|| match link.lower_elsewhere {
            Some(at) => VethPeer::elsewhere(netlink, at),
            None => VethPeer::Here(link.lower),
        });
        Self { link: link.clone(), peer }
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
}

impl VethPeer {
    /// In another namespace, which is entered if it is found.
    fn elsewhere(netlink: &mut Netlink, at: LinkElsewhere) -> Self {
        let namespace = match OtherNamespace::find(netlink, at.namespace) {
            Ok(namespace) => namespace,
            Err(why) => return Self::Hidden(HiddenPeer { place: None, why }),
        };
        match namespace.run(|| Ok((Netlink::open()?, Ethtool::open()?))) {
            Ok((netlink, ethtool)) => {
                Self::Elsewhere(Box::new(PeerClients { index: at.index, namespace, netlink, ethtool }))
            }
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
            Self::Elsewhere(clients) => {
                let there = clients.netlink.link_at(clients.index)?;
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
