//! Watches the interfaces of a run: whether they are up, their MTU, and their XDP program.
//!
//! What  Nothing moves over an interface that is down: the user is warned at once. Without a carrier nothing
//!       moves either: the warning comes at the second look, because a card may restart its link. Frames are
//!       as long as the MTU allowed when the sockets were opened. If it changes, the run warns at once and
//!       goes on. It fails if packets were too long since, or if it sends to an interface whose MTU has
//!       shrunk: what that drops is not counted. If the XDP program is detached or replaced, nothing arrives
//!       any more, and the run ends. An interface that is renamed stays in the run, and has its new name in
//!       messages: another interface may get the old one.
//! Why   This polls because the kernel sends no message when a program is detached. Cost: two or three calls
//!       an interface, five times a second, on the thread that only waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pagepool_link::{LinkInfo, Netlink, shell_word};
use pagepool_net::Redirect;
use serde::Serialize;

use crate::report::{OWN_LINE, Verdict, in_words, output};
use crate::traffic::sockets::Interface;
use crate::traffic::{PortSample, RunEnd, SharedState, sum};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(200);

pub struct LinkWatch<'a> {
    netlink: Netlink,
    /// By link: what redirects its packets, if anything does.
    redirects: Vec<Option<&'a Redirect>>,
    looked: Duration,
    changes: LinkChanges,
}

/// An interface, as it was at the last look.
#[derive(Debug)]
pub struct WatchedLink {
    /// As it was when the sockets were opened.
    opened: LinkInfo,
    /// The name of the device over it in reports.
    device: String,
    pub name: String,
    mtu: u32,
    pub is_down: bool,
    /// Whether it was down at some time.
    pub was_down: bool,
    /// At how many successive looks it was up without a carrier.
    without_carrier: u32,
}

/// The interfaces at the last look, and what had changed by then.
#[derive(Debug, Default)]
pub struct LinkChanges {
    pub links: Vec<WatchedLink>,
    mtus: Vec<MtuChange>,
    names: Vec<NameChange>,
    /// The ports' counts when all interfaces were last seen: if one was removed, before that.
    pub before_removal: Vec<PortSample>,
    /// Packets that were too long by the last look, and before the MTU first changed.
    too_long: u64,
    too_long_before: Option<u64>,
    sends: bool,
}

#[derive(Debug, Serialize)]
struct NameChange {
    from: String,
    to: String,
}

#[derive(Debug, Serialize)]
struct MtuChange {
    interface: String,
    from: u32,
    to: u32,
    /// The MTU when the sockets were opened.
    #[serde(skip)]
    opened: u32,
}

impl<'a> LinkWatch<'a> {
    /// Begins before the run: with the interfaces as they were when the sockets were opened, and what
    /// redirects the packets of those with sockets, in the same order. `sends`: packets are sent to them.
    pub fn new(
        interfaces: &[Interface],
        redirects: &'a [Arc<Redirect>],
        sends: bool,
    ) -> Result<Self, String> {
        let mut netlink = Netlink::open().map_err(in_words)?;
        let mut rest = redirects.iter().map(Arc::as_ref);
        let redirect = |of: &Interface| if of.has_sockets() { rest.next() } else { None };
        let with_link = interfaces.iter().filter(|interface| interface.link.is_some());
        let redirects = with_link.clone().map(redirect).collect();
        let new = |of: &Interface| Some(WatchedLink::new(&of.name, of.link.as_ref()?));
        let mut links: Vec<_> = with_link.filter_map(new).collect();
        for link in &mut links {
            if let Ok(Some(now)) = netlink.link_at(link.opened.index) {
                link.update_down(!now.is_up);
            }
        }
        let changes = LinkChanges { links, sends, ..LinkChanges::default() };
        Ok(Self { netlink, redirects, looked: Duration::ZERO, changes })
    }

    /// Looks, if it is time. Records a detached program in the run's state.
    pub fn look(&mut self, at: Duration, state: &SharedState) {
        if at >= self.looked + EVERY {
            self.looked = at;
            self.look_now(state);
        }
    }

    fn look_now(&mut self, state: &SharedState) {
        let (ports, mut are_there) = (state.sample().ports, true); // before the interfaces are queried
        let Self { netlink, changes, .. } = self;
        for (which, link) in changes.links.iter_mut().enumerate() {
            // Threads notice that an interface is gone when they are awake.
            let Ok(Some(now)) = netlink.link_at(link.opened.index) else {
                state.wake_threads();
                are_there = false;
                continue;
            };
            changes.names.extend(link.update_name(now.name));
            if let Some(change) = link.update_mtu(now.mtu) {
                changes.mtus.push(change);
                changes.too_long_before.get_or_insert(changes.too_long);
            }
            if link.update_down(!now.is_up) {
                state.wake_threads(); // for drivers that need another call
            }
            link.update_carrier(!now.is_up || now.has_carrier);
            let is_detached = self.redirects[which].is_some_and(Redirect::is_detached);
            // It also counts as detached if its interface was removed after the query above.
            if is_detached && matches!(netlink.link_at(link.opened.index), Ok(Some(_))) {
                state.set_end(RunEnd::Detached(link.name.clone()));
            }
        }
        changes.too_long = too_long(&ports);
        if are_there {
            changes.before_removal = ports;
        }
    }

    /// Looks a last time, and returns the changes.
    pub fn changes(mut self, state: &SharedState) -> LinkChanges {
        self.look_now(state);
        self.changes
    }
}

impl WatchedLink {
    pub fn new(device: &str, opened: &LinkInfo) -> Self {
        let (device, opened, name, mtu) =
            (device.to_owned(), opened.clone(), opened.name.clone(), opened.mtu);
        Self { opened, device, name, mtu, is_down: false, was_down: false, without_carrier: 0 }
    }

    fn update_name(&mut self, to: String) -> Option<NameChange> {
        let from = std::mem::replace(&mut self.name, to.clone());
        let change = (from != to).then_some(NameChange { from, to })?;
        output::note(format_args!("{change}: the command continues"));
        Some(change)
    }

    /// `has`: it has a carrier, or is down, which has its own warning.
    fn update_carrier(&mut self, has: bool) {
        let looks = if has { 0 } else { self.without_carrier.saturating_add(1) };
        let (name, before) = (&self.name, std::mem::replace(&mut self.without_carrier, looks));
        match (before, looks) {
            (_, 2) => {
                output::warn(format_args!("{name} has no carrier: no packets move until the other end is up"))
            }
            (2.., 0) if !self.is_down => output::note(format_args!("{name} has a carrier again")),
            _ => {}
        }
    }

    /// Returns whether it changed.
    fn update_down(&mut self, is_down: bool) -> bool {
        let (before, name) = (std::mem::replace(&mut self.is_down, is_down), &self.name);
        self.was_down |= is_down;
        match (before, is_down) {
            (false, true) => {
                let word = shell_word(name);
                output::warn(format_args!(
                    "{name} is down: no packets move. Run:{OWN_LINE}ip link set dev {word} up"
                ));
            }
            (true, false) => output::note(format_args!("{name} is up")),
            _ => {}
        }
        before != is_down
    }

    fn update_mtu(&mut self, to: u32) -> Option<MtuChange> {
        let from = std::mem::replace(&mut self.mtu, to);
        let (interface, opened) = (self.name.clone(), self.opened.mtu);
        let change = (from != to).then_some(MtuChange { interface, from, to, opened })?;
        output::warn(format_args!("{change}: the command still works with {opened}; restart it"));
        Some(change)
    }
}

impl LinkChanges {
    /// The interface of a device, from the device's name.
    pub fn link(&self, device: &str) -> Option<&WatchedLink> {
        self.links.iter().find(|link| link.device == device)
    }

    /// The name of a device's interface at the end; that of the device if it has none.
    pub fn current_name<'a>(&'a self, device: &'a str) -> &'a str {
        self.link(device).map_or(device, |link| &link.name)
    }

    /// Judges the changes, with what the ports have counted until the end.
    pub fn judge(&self, verdict: &mut Verdict, end: &RunEnd, ports: &[PortSample]) {
        if let RunEnd::Detached(interface) = end {
            verdict.field("detached", interface);
            verdict.fail_if(true, || format!("the XDP program of {interface} was detached or replaced"));
        }
        verdict.some_field("name_changes", Some(&self.names).filter(|names| !names.is_empty()));
        self.names.iter().for_each(|change| verdict.paragraph(&change.to_string()));
        let Some(first) = self.mtus.first() else { return };
        verdict.field("mtu_changes", &self.mtus);
        let since = too_long(ports).saturating_sub(self.too_long_before.unwrap_or(0));
        verdict.paragraph(&format!("{first} while the command ran"));
        verdict.fail_if(since > 0, || format!("{since} packets were too long after {first}"));
        if let Some(shorter) = self.mtus.iter().find(|change| self.sends && change.to < change.opened) {
            let what = "longer packets sent since then were lost, but not counted";
            verdict.fail_if(true, || format!("{shorter}, and {what}"));
        }
    }
}

impl fmt::Display for NameChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was renamed to {}", self.from, self.to)
    }
}

impl fmt::Display for MtuChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, from, to, .. } = self;
        write!(f, "the MTU of {interface} changed from {from} to {to}")
    }
}

/// Packets that were too long for an interface or its buffers.
fn too_long(ports: &[PortSample]) -> u64 {
    sum(ports, |at| at.nic.rx_too_long + at.nic.rx_too_many_buffers + at.nic.tx_too_long)
}
