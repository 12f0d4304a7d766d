//! Offloads that are held off for a while, and put back as they were.

use super::kind::Offload;
use super::name_text::shell_word;
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
#[derive(Debug)]
pub struct HeldOffloads {
    netlink: Netlink,
    ethtool: Ethtool,
    link: LinkInfo,
    /// The features that were turned off.
    features: u128,
    names: Vec<String>,
}

impl HeldOffloads {
    /// Turns offloads of a link of the calling thread's namespace off. An error leaves all as they were.
    pub(super) fn new(link: &LinkInfo, offloads: &[Offload]) -> Result<Self, NetError> {
        let (netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
        let before = ethtool.features(&link.name)?;
        let bits = ethtool.bits(&link.name, offloads)? & before.available;
        let all = ethtool.feature_names(&link.name)?;
        let features = bits & before.wanted;
        let names = all.into_iter().enumerate().filter(|(number, _)| features >> number & 1 == 1);
        let names = names.map(|(_, name)| name).collect();
        let this = Self { netlink, ethtool, link: link.clone(), features, names };
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

    /// The `ethtool` command that puts the offloads back by hand: each feature that was turned off, by its
    /// own name. Asks for the name that the link has now.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     if let Some(mut held) = fault.hold_off()? {
    ///         eprintln!("if this process is killed: {}", held.undo());
    ///     }
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn undo(&mut self) -> String {
        self.link.name = self.netlink.name_now(&self.link);
        let on: Vec<String> = self.names.iter().map(|name| format!("{name} on")).collect();
        format!("ethtool -K {} {}", shell_word(&self.link.name), on.join(" "))
    }

    /// Puts the offloads back now, and says why not if that fails. A link that was removed is no error.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_net::link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     fault.hold_off()?.map_or(Ok(()), |held| held.restore())?;
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

impl Drop for HeldOffloads {
    fn drop(&mut self) {
        let _ = self.put_back(); // `restore` says why not
    }
}
