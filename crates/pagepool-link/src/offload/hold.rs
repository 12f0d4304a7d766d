//! Turns offloads off for a while, and restores them.

use crate::error::LinkError;
use crate::ethtool::offload::Offload;
use crate::ethtool::{Ethtool, numbered};
use crate::link_info::LinkInfo;
use crate::netlink::Netlink;
use crate::shell_word::shell_word;

/// Offloads of a link that are off until this is dropped, which restores them.
///
/// Offloads that were off stay off. A renamed link is found again. A process that is killed, or aborts,
/// restores nothing: [`undo`](Self::undo) returns the command to do it by hand. While an XDP program is
/// attached to a veth, the kernel may refuse segmentation offloads to its peer. Therefore detach the program
/// before you drop this.
///
/// Offloads that another value or process already holds off are not held by this one: they are on again when
/// the other is dropped.
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
    /// Turns offloads of a link of the calling thread's namespace off. An error changes nothing.
    pub(super) fn new(link: &LinkInfo, offloads: &[Offload]) -> Result<Self, LinkError> {
        let (netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
        let before = ethtool.features(&link.name)?;
        let all = ethtool.feature_names(&link.name)?;
        let bits = numbered(&all, offloads) & before.available;
        let features = bits & before.wanted;
        let names = all.into_iter().enumerate().filter(|(number, _)| features >> number & 1 == 1);
        let names = names.map(|(_, name)| name).collect();
        let this = Self { netlink, ethtool, link: link.clone(), features, names };
        this.ethtool.set(&link.name, before, bits, false)?;
        // If it refuses, the drop of `this` restores them.
        this.ethtool.refuse_kept(&link.name, offloads, false, |now| now.active & bits)?;
        Ok(this)
    }

    /// The `ethtool` command that restores the offloads by hand: each feature by its own name, for the link's
    /// current name.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     if let Some(mut held) = fault.hold_off()? {
    ///         eprintln!("if this process is killed: {}", held.undo());
    ///     }
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn undo(&mut self) -> String {
        self.link.name = self.netlink.name_now(&self.link);
        let on: Vec<String> = self.names.iter().map(|name| format!("{name} on")).collect();
        format!("ethtool -K {} {}", shell_word(&self.link.name), on.join(" "))
    }

    /// Restores the offloads now. A link that was removed is no error.
    ///
    /// ```no_run
    /// // It changes the links of the machine that runs this.
    /// use pagepool_link::{Ethtool, Netlink, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// let link = netlink.link("eth0")?;
    /// for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///     fault.hold_off()?.map_or(Ok(()), |held| held.restore())?;
    /// }
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn restore(mut self) -> Result<(), LinkError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), LinkError> {
        let features = std::mem::take(&mut self.features);
        if features == 0 {
            return Ok(());
        }
        let Some(link) = self.netlink.link_at(self.link.index)? else { return Ok(()) };
        let now = self.ethtool.features(&link.name)?;
        self.ethtool.set(&link.name, now, features, true)?;
        // The kernel silently ignores features that the link cannot have now.
        self.ethtool.refuse_kept(&link.name, &Offload::ALL, true, |now| features & !now.wanted)
    }
}

impl Drop for HeldOffloads {
    fn drop(&mut self) {
        let _ = self.put_back(); // `restore` reports errors
    }
}
