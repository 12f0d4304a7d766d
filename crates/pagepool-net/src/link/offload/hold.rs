//! Offloads that are held off for a while, and put back as they were.

use std::path::PathBuf;

use super::kind::Offload;
use super::other_namespace::{NamespaceId, OtherNamespace};
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::LinkInfo;
use crate::link::netlink::Netlink;
use crate::link::sys::ethtool::Features;

/// Offloads of a link that are off until this is dropped, and then as they were before.
///
/// What was off before stays off. The link is found again if it was renamed. A process that is killed, or
/// that aborts, drops nothing: [`undo`](Self::undo) says what puts the offloads back by hand. While an XDP
/// program is attached to a veth, the kernel may refuse segmentation offloads to its other end; so detach it,
/// by dropping sockets and [`Redirect`](crate::Redirect)s, before this is dropped.
///
/// What another value, or process, holds off already this one finds off, and does not hold: when the other is
/// dropped it is on again.
///
/// Of a veth's other end in another network namespace it keeps sockets that were opened there. So putting
/// back takes CAP_NET_ADMIN alone, and the namespace lives as long: see [`is_last_user`](Self::is_last_user).
#[derive(Debug)]
pub struct HeldOffloads {
    netlink: Netlink,
    ethtool: Ethtool,
    link: LinkInfo,
    /// The features that were turned off.
    features: u128,
    names: Vec<String>,
    elsewhere: Option<Elsewhere>,
}

/// The other network namespace that a link is in. The clients keep it alive.
#[derive(Debug)]
struct Elsewhere {
    prefix: String,
    place: PathBuf,
    id: NamespaceId,
}

impl HeldOffloads {
    /// Turns offloads of a link off, which is in that namespace, or in the calling thread's. An error leaves
    /// all as they were.
    pub(super) fn new(
        link: &LinkInfo,
        namespace: Option<&OtherNamespace>,
        offloads: &[Offload],
    ) -> Result<Self, NetError> {
        let open = || Ok::<_, NetError>((Netlink::open()?, Ethtool::open()?));
        let (netlink, ethtool) = namespace.map_or_else(open, |namespace| namespace.run(open))?;
        let elsewhere = namespace.map(Elsewhere::of);
        let before = ethtool.features(&link.name)?;
        let bits = ethtool.bits(&link.name, offloads)? & before.available;
        let all = ethtool.feature_names(&link.name)?;
        let features = bits & before.wanted;
        let names = all.into_iter().enumerate().filter(|(number, _)| features >> number & 1 == 1);
        let names = names.map(|(_, name)| name).collect();
        let this = Self { netlink, ethtool, link: link.clone(), features, names, elsewhere };
        this.ethtool.set(&link.name, before, bits, false)?;
        let on = this.ethtool.those(&link.name, offloads, |now| now.active & bits)?;
        match on.first() {
            None => Ok(this),
            Some(offload) => {
                let (link, offload) = (link.name.clone(), offload.name());
                Err(NetError::FixedOffload { link, offload, wanted: false }) // dropped: all as it was
            }
        }
    }

    /// The command that puts the offloads back by hand, for who finds them off: each feature that was turned
    /// off by its own name. It enters the network namespace of a veth's other end, if that is another one.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     eprintln!("if this process is killed: {}", fault.hold_off()?.undo());
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn undo(&self) -> String {
        let on: Vec<String> = self.names.iter().map(|name| format!("{name} on")).collect();
        let prefix = self.elsewhere.as_ref().map_or("", |there| &there.prefix);
        format!("{prefix}ethtool -K {} {}", self.link.name, on.join(" "))
    }

    /// Whether these are offloads of another network namespace that nobody uses any more: no name of `ip
    /// netns` and no process leads to it. It lives as long as this value does, and the link with it; drop the
    /// value then. A stat of a name or a process, and of all if that is gone.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("veth0")?;
    /// let faults = offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)?;
    /// let mut held = faults.iter().map(|fault| fault.hold_off()).collect::<Result<Vec<_>, _>>()?;
    /// held.retain(|held| !held.is_last_user()); // from time to time
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn is_last_user(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|there| !there.id.is_in_use(&there.place))
    }

    /// Puts the offloads back now, and says why not if that fails. A link that was removed is no error.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     fault.hold_off()?.restore()?;
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn restore(mut self) -> Result<(), NetError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), NetError> {
        let features = std::mem::take(&mut self.features);
        let links = self.netlink.links()?;
        let Some(link) = links.iter().find(|link| link.index == self.link.index) else { return Ok(()) };
        if features != 0 {
            let now = self.ethtool.features(&link.name)?;
            self.ethtool.set(&link.name, now, features, true)?;
            // The kernel takes no notice of what it does not let a link have now.
            let missing = |now: Features| features & !now.wanted;
            if let Some(offload) = self.ethtool.those(&link.name, &Offload::ALL, missing)?.first() {
                let (link, offload) = (link.name.clone(), offload.name());
                return Err(NetError::FixedOffload { link, offload, wanted: true });
            }
        }
        Ok(())
    }
}

impl Elsewhere {
    fn of(namespace: &OtherNamespace) -> Self {
        let (place, id) = namespace.found();
        Self { prefix: namespace.prefix(), place, id }
    }
}

impl Drop for HeldOffloads {
    fn drop(&mut self) {
        let _ = self.put_back(); // `restore` says why not
    }
}
