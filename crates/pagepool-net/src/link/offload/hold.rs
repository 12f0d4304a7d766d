//! Offloads that are held off for a while, and put back as they were.

use std::fmt;

use pagepool::observe::shown;

use super::kind::Offload;
use super::name_text::shell_word;
use super::namespace_way::NamespaceWay;
use super::other_namespace::OtherNamespace;
use crate::link::error::NetError;
use crate::link::ethtool::Ethtool;
use crate::link::link_info::LinkInfo;
use crate::link::netlink::Netlink;
use crate::link::sys::ethtool::Features;

/// Names and processes that one question looks at: the thread that asks may have to answer soon itself.
const AT_ONCE: usize = 1 << 12;

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
    /// What leads to the other network namespace that the link is in. The clients keep that alive.
    elsewhere: Option<NamespaceWay>,
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
        let elsewhere = namespace.map(OtherNamespace::way).transpose()?;
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
    /// Asks for the name that the link has now.
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
    pub fn undo(&mut self) -> String {
        self.link.name = self.netlink.name_now(&self.link);
        let on: Vec<String> = self.names.iter().map(|name| format!("{name} on")).collect();
        let prefix = self.elsewhere.as_ref().map(NamespaceWay::prefix).unwrap_or_default();
        format!("{prefix}ethtool -K {} {}", shell_word(&self.link.name), on.join(" "))
    }

    /// Whether these are offloads of another network namespace to which no name of `ip netns` and no process
    /// leads any more. It lives as long as this value does, and the link with it: [`abandon`](Self::abandon)
    /// the value then. Takes no capability.
    ///
    /// A stat of the name or process that led there. When that is gone, another one is looked for, at most
    /// 4,096 in a call, and takes its place, in [`undo`](Self::undo) too. Meanwhile, and for ever where
    /// `/proc` hides processes (`hidepid`), it is not known: false.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("veth0")?;
    /// let faults = offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)?;
    /// let mut held = faults.iter().map(|fault| fault.hold_off()).collect::<Result<Vec<_>, _>>()?;
    /// // From time to time:
    /// held.extract_if(.., |held| held.is_last_user()).for_each(|held| held.abandon());
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn is_last_user(&mut self) -> bool {
        self.elsewhere.as_mut().is_some_and(|way| !way.leads_there(AT_ONCE))
    }

    /// Lets go of the link and its namespace. The offloads stay off.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     fault.hold_off()?.abandon(); // off for good
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn abandon(mut self) {
        self.features = 0;
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
        if features == 0 {
            return Ok(());
        }
        let links = self.netlink.links()?;
        let Some(link) = links.iter().find(|link| link.index == self.link.index) else { return Ok(()) };
        let now = self.ethtool.features(&link.name)?;
        self.ethtool.set(&link.name, now, features, true)?;
        // The kernel takes no notice of what it does not let a link have now.
        let missing = |now: Features| features & !now.wanted;
        match self.ethtool.those(&link.name, &Offload::ALL, missing)?.first() {
            None => Ok(()),
            Some(offload) => {
                let (link, offload) = (link.name.clone(), offload.name());
                Err(NetError::FixedOffload { link, offload, wanted: true })
            }
        }
    }
}

/// The link's name, for people: control characters are escaped.
impl fmt::Display for HeldOffloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.link.name))
    }
}

impl Drop for HeldOffloads {
    fn drop(&mut self) {
        let _ = self.put_back(); // `restore` says why not
    }
}
