//! Offloads that falsify what an XDP program sees: packets without VLAN tags or checksums, and merged ones.

use std::fmt;

use super::hold::HeldOffloads;
use super::kind::Offload;
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::{LinkInfo, XdpMode};
use crate::link::netlink::Netlink;

/// Offloads of one link that falsify the packets which arrive at an interface, as XDP and AF_XDP see them.
///
/// It is displayed as a warning: what is wrong with the packets, and the `ethtool` command against it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffloadFault {
    /// The interface at which the packets arrive.
    pub interface: String,
    /// Whose offloads these are.
    pub owner: OffloadOwner,
    /// The offloads, of which the driver can turn each off.
    pub offloads: Vec<Offload>,
    /// More of them, which the driver keeps on.
    pub fixed: Vec<Offload>,
}

/// Whose offloads falsify the packets that arrive at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffloadOwner {
    /// The interface's own.
    Interface(LinkInfo),
    /// The other end's, of a veth.
    Peer(LinkInfo),
    /// The other end's, of a veth, in another network namespace. What it has on is presumed to be what the
    /// interface has on.
    HiddenPeer,
}

/// The offloads that falsify what arrives at a link of the clients' namespace, for a program in this mode.
/// An empty list: XDP sees packets as a wire would carry them.
///
/// A veth's other end leaves work to hardware that a veth does not have: it sends packets without VLAN tags
/// and checksums, and longer ones than the MTU. A network card takes VLAN tags out of packets, or merges
/// packets, before XDP sees them; in generic mode the kernel merges too. A pass over all links, for a veth,
/// and some system calls.
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
    let is_veth = link.kind.as_deref() == Some("veth");
    let mut faults = Vec::new();
    if is_veth {
        let owner = match link.lower {
            Some(index) => netlink.links()?.into_iter().find(|other| other.index == index),
            None => None,
        };
        let owner = owner.map_or(OffloadOwner::HiddenPeer, OffloadOwner::Peer);
        faults.extend(OffloadFault::of(ethtool, link, owner, &Offload::OF_SENDER)?);
    }
    let mut before_us = if mode == XdpMode::Generic { vec![Offload::Gro] } else { Vec::new() };
    // A veth takes no tag out of what arrives, and merges nothing by itself, whatever it has on.
    before_us.extend(Offload::OF_RECEIVER.into_iter().filter(|_| !is_veth));
    faults.extend(OffloadFault::of(ethtool, link, OffloadOwner::Interface(link.clone()), &before_us)?);
    Ok(faults)
}

impl OffloadFault {
    /// Those of the offloads that are on, if any is.
    fn of(
        ethtool: &Ethtool,
        link: &LinkInfo,
        owner: OffloadOwner,
        of: &[Offload],
    ) -> Result<Option<Self>, NetError> {
        let seen = match &owner {
            OffloadOwner::Interface(link) | OffloadOwner::Peer(link) => &link.name,
            OffloadOwner::HiddenPeer => &link.name,
        };
        let offloads = ethtool.those(seen, of, |features| features.active & features.available)?;
        let on = ethtool.those(seen, of, |features| features.active)?;
        let fixed: Vec<_> = on.into_iter().filter(|on| !offloads.contains(on)).collect();
        let interface = link.name.clone();
        let any = !offloads.is_empty() || !fixed.is_empty();
        Ok(any.then_some(Self { interface, owner, offloads, fixed }))
    }

    /// The link whose offloads these are; `None` if it is in another network namespace.
    pub fn link(&self) -> Option<&LinkInfo> {
        match &self.owner {
            OffloadOwner::Interface(link) | OffloadOwner::Peer(link) => Some(link),
            OffloadOwner::HiddenPeer => None,
        }
    }

    /// The command that turns them off, to be run in the namespace of the link that has them, with the name
    /// that it has there. `None` if all are fixed.
    ///
    /// ```
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// for link in netlink.links()? {
    ///     for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Generic)? {
    ///         let command = fault.command().unwrap_or_default();
    ///         assert!(command.is_empty() || command.starts_with("ethtool -K "), "{command}");
    ///     }
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn command(&self) -> Option<String> {
        let name = self.link().map_or(&self.interface, |link| &link.name);
        let mut offloads = self.offloads.clone();
        offloads.sort_by_key(|of| *of != Offload::TxChecksum); // the rest depends on it
        let off: Vec<String> = offloads.iter().map(|of| format!("{} off", of.keyword())).collect();
        (!off.is_empty()).then(|| format!("ethtool -K {name} {}", off.join(" ")))
    }

    /// Turns them off, but for those that are fixed, until the value is dropped: see [`HeldOffloads`]. An
    /// error if they are in another network namespace, or nothing can be turned off.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// let faults = offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)?;
    /// let held = faults.iter().map(|fault| fault.hold_off()).collect::<Result<Vec<_>, _>>()?;
    /// // Open AF_XDP sockets, receive and send; close them before `held` is dropped.
    /// drop(held);
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn hold_off(&self) -> Result<HeldOffloads, NetError> {
        match (self.link(), self.offloads.first(), self.fixed.first()) {
            (None, ..) => Err(NetError::HiddenPeer { link: self.interface.clone() }),
            (Some(link), None, Some(offload)) => Err(NetError::FixedOffload {
                link: link.name.clone(),
                offload: offload.name(),
                wanted: false,
            }),
            (Some(link), ..) => HeldOffloads::new(link, &self.offloads),
        }
    }
}

/// What offloads make of packets: how they arrive.
fn effects(offloads: &[Offload]) -> String {
    let any = |of: &[Offload]| offloads.iter().any(|offload| of.contains(offload));
    let tags = [Offload::TxVlan, Offload::TxOuterVlan, Offload::RxVlan, Offload::RxOuterVlan];
    let (no_checksums, no_tags) = (any(&[Offload::TxChecksum]), any(&tags));
    let longer = offloads.iter().any(|of| *of != Offload::TxChecksum && !tags.contains(of));
    let lacking = [("checksums", no_checksums), ("VLAN tags", no_tags)];
    let lacking: Vec<_> = lacking.iter().filter(|(_, lacks)| *lacks).map(|(what, _)| *what).collect();
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
        let Self { interface, owner, offloads, fixed } = self;
        let how = effects(&[offloads.as_slice(), fixed].concat());
        match owner {
            OffloadOwner::Interface(_) => write!(f, "packets arrive at {interface} {how}")?,
            OffloadOwner::Peer(peer) => {
                write!(f, "packets from {interface}'s peer {} arrive {how}", peer.name)?;
            }
            OffloadOwner::HiddenPeer => write!(f, "packets from {interface}'s peer arrive {how}")?,
        }
        if let Some(command) = self.command() {
            match owner {
                OffloadOwner::HiddenPeer => {
                    write!(f, ". Run at both ends, each with its own name: {command}")?
                }
                _ => write!(f, ". Run: {command}")?,
            }
        }
        if !fixed.is_empty() {
            write!(f, ". The driver cannot turn {} off", names(fixed))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_is_wrong_and_what_helps() {
        let lo = Netlink::open().unwrap().link("lo").unwrap();
        let mut fault = OffloadFault {
            interface: "lo".into(),
            owner: OffloadOwner::Interface(lo.clone()),
            offloads: vec![Offload::Lro, Offload::RxVlan],
            fixed: vec![Offload::RxOuterVlan],
        };
        assert_eq!(
            fault.to_string(),
            "packets arrive at lo without VLAN tags, or longer than the MTU. Run: ethtool -K lo lro off \
             rxvlan off. The driver cannot turn rx-vlan-stag-hw-parse off"
        );
        fault.offloads.clear();
        assert_eq!(fault.command(), None);
        let said = fault.hold_off().unwrap_err().to_string();
        assert!(said.starts_with("rx-vlan-stag-hw-parse of \"lo\" stays on"), "{said}");
        let hidden = OffloadFault { owner: OffloadOwner::HiddenPeer, ..fault };
        let said = hidden.hold_off().unwrap_err();
        assert!(said.to_string().contains("other end of \"lo\""), "{said}");
        let offloads = vec![Offload::Tso, Offload::Gso, Offload::TxChecksum];
        let hidden = OffloadFault { offloads, fixed: Vec::new(), ..hidden };
        assert_eq!(
            hidden.to_string(),
            "packets from lo's peer arrive without checksums, or longer than the MTU. Run at both ends, \
             each with its own name: ethtool -K lo tx off tso off gso off"
        );
    }
}
