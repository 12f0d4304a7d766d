//! What becomes of interfaces while a command runs: whether they are up, their MTU, and their XDP program.
//!
//! What   nothing moves over an interface that is down, which is said at once, or has no carrier, which is
//!        said at the second look: a card may restart its link. Frames are as long as the MTU
//!        says when a command opens its sockets. If it changes, the run goes on, and it is told at once. The
//!        run failed if packets were too long since, or if it sends packets to an interface that takes only
//!        shorter ones now: nobody counts what it drops. A program that somebody detaches or replaces
//!        ends the run, for nothing arrives any more. One that gets another name stays, and is called by
//!        that: its old name may be another's by then.
//! Why    here, and not by the kernel's messages: it sends none when a program is detached. Two or three
//!        calls an interface, five times a second, on the thread that only waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pagepool_net::Redirect;
use pagepool_net::link::{LinkInfo, Netlink, shell_word};
use serde::Serialize;

use super::port_sample::PortSample;
use super::run_state::{RunEnd, RunState};
use crate::report::error::error_chain;
use crate::report::output;
use crate::report::terminal::OWN_LINE;
use crate::report::verdict::Verdict;

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(200);

/// Looks at the interfaces of a run.
pub struct LinkWatch<'a> {
    netlink: Netlink,
    /// As they were when the sockets were opened.
    links: Vec<&'a LinkInfo>,
    redirects: &'a [Arc<Redirect>],
    /// The name of each interface at the last look.
    names: Vec<String>,
    /// The MTU of each interface at the last look.
    mtus: Vec<u32>,
    sends: bool,
    /// Whether each was down at the last look.
    down: Vec<bool>,
    /// At how many looks in a row each was up and had no carrier.
    without_carrier: Vec<u32>,
    looked: Duration,
    /// Packets that were too long at the last look.
    too_long: u64,
    changes: SeenChanges,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct SeenChanges {
    mtus: Vec<MtuChange>,
    names: Vec<NameChange>,
    /// The name that each interface had at first, and the one at the end.
    called: Vec<(String, String)>,
    /// What the ports had counted when all interfaces were last seen to be there.
    while_there: Vec<PortSample>,
    /// Packets that were too long before the first change.
    before: u64,
    sends: bool,
    /// The interfaces that were down at some time, and at the end.
    was_down: Vec<String>,
    is_down: Vec<String>,
}

/// A change of an interface's name.
#[derive(Clone, Debug, Serialize)]
struct NameChange {
    from: String,
    to: String,
}

/// A change of an interface's MTU.
#[derive(Clone, Debug, Serialize)]
struct MtuChange {
    interface: String,
    from: u32,
    to: u32,
    /// When the sockets were opened.
    #[serde(skip)]
    opened: u32,
}

impl<'a> LinkWatch<'a> {
    /// Before the run: of interfaces as they were when the sockets were opened, with what redirects their
    /// packets, in the same order. `sends`: packets are sent to them.
    pub fn new(
        links: Vec<&'a LinkInfo>,
        redirects: &'a [Arc<Redirect>],
        sends: bool,
    ) -> Result<Self, String> {
        let netlink = Netlink::open().map_err(|error| error_chain(&error))?;
        let mtus = links.iter().map(|link| link.mtu).collect();
        let names = links.iter().map(|link| link.name.clone()).collect();
        let (looked, changes) = (Duration::ZERO, SeenChanges::default());
        let down = vec![false; links.len()];
        let without_carrier = vec![0; links.len()];
        let mut this = Self {
            netlink,
            links,
            redirects,
            names,
            mtus,
            sends,
            down,
            without_carrier,
            looked,
            too_long: 0,
            changes,
        };
        for which in 0..this.links.len() {
            if let Ok(Some(now)) = this.netlink.link_at(this.links[which].index) {
                this.see_down(which, !now.is_up);
            }
        }
        Ok(this)
    }

    /// Looks, if it is time. Tells the run's state of a program that was detached.
    pub fn look(&mut self, at: Duration, state: &RunState) {
        if at >= self.looked + EVERY {
            self.looked = at;
            self.look_now(state);
        }
    }

    fn look_now(&mut self, state: &RunState) {
        let (ports, mut are_there) = (state.sample().ports, true); // before the interfaces are asked
        for which in 0..self.links.len() {
            let link = self.links[which];
            // An interface that is gone is noticed by the threads when they are awake.
            let Ok(Some(now)) = self.netlink.link_at(link.index) else {
                state.wake_threads();
                are_there = false;
                continue;
            };
            self.see_name(which, now.name);
            self.see_mtu(which, now.mtu);
            if self.see_down(which, !now.is_up) {
                state.wake_threads(); // for drivers that want to be called again
            }
            self.see_carrier(which, !now.is_up || now.has_carrier);
            let is_detached = self.redirects.get(which).is_some_and(|redirect| redirect.is_detached());
            // So is one whose interface was removed after the question above.
            if is_detached && matches!(self.netlink.link_at(link.index), Ok(Some(_))) {
                state.set_detached(&self.names[which]);
            }
        }
        self.too_long = too_long(&ports);
        if are_there {
            self.changes.while_there = ports;
        }
    }

    fn see_name(&mut self, which: usize, to: String) {
        if to != self.names[which] {
            let from = std::mem::replace(&mut self.names[which], to.clone());
            let change = NameChange { from, to };
            output::note(format_args!("{change}: the command goes on with it"));
            self.changes.names.push(change);
        }
    }

    /// `has`: it has a carrier, or is down, which is said instead.
    fn see_carrier(&mut self, which: usize, has: bool) {
        let looks = if has { 0 } else { self.without_carrier[which].saturating_add(1) };
        let before = std::mem::replace(&mut self.without_carrier[which], looks);
        let name = &self.names[which];
        match (before, looks) {
            (_, 2) => output::warn(format_args!(
                "{name} has no carrier: nothing moves there until the other end is up"
            )),
            (2.., 0) if !self.down[which] => output::note(format_args!("{name} has a carrier again")),
            _ => {}
        }
    }

    /// Says whether that changed.
    fn see_down(&mut self, which: usize, down: bool) -> bool {
        let before = std::mem::replace(&mut self.down[which], down);
        let (opened, name) = (&self.links[which].name, &self.names[which]);
        match (before, down) {
            (false, true) => {
                let word = shell_word(name);
                output::warn(format_args!(
                    "{name} is down: nothing moves there. Run:{OWN_LINE}ip link set dev {word} up"
                ));
            }
            (true, false) => output::note(format_args!("{name} is up")),
            _ => {}
        }
        if down && !self.changes.was_down.contains(opened) {
            self.changes.was_down.push(opened.clone());
        }
        before != down
    }

    fn see_mtu(&mut self, which: usize, to: u32) {
        let from = std::mem::replace(&mut self.mtus[which], to);
        if from == to {
            return;
        }
        let (name, opened) = (&self.names[which], self.links[which].mtu);
        output::warn(format_args!(
            "the MTU of {name} changed from {from} to {to}: the command still works with {opened}; \
             restart it"
        ));
        if self.changes.mtus.is_empty() {
            (self.changes.before, self.changes.sends) = (self.too_long, self.sends);
        }
        self.changes.mtus.push(MtuChange { interface: name.clone(), from, to, opened });
    }

    /// What was seen, with a last look.
    pub fn changes(mut self, state: &RunState) -> SeenChanges {
        self.look_now(state);
        let down = self.links.iter().zip(&self.down).filter(|(_, down)| **down);
        self.changes.is_down = down.map(|(link, _)| link.name.clone()).collect();
        let opened = self.links.iter().map(|link| link.name.clone());
        self.changes.called = opened.zip(self.names).collect();
        self.changes
    }
}

impl SeenChanges {
    /// What an interface is called at the end, by the name that it had at first.
    pub fn called_now<'a>(&'a self, interface: &'a str) -> &'a str {
        let called = self.called.iter().find(|(opened, _)| opened == interface);
        called.map_or(interface, |(_, now)| now)
    }

    /// What the ports had counted before an interface went away, if one did.
    pub fn while_there(&self) -> &[PortSample] {
        &self.while_there
    }

    /// Whether this interface, by the name that it had at first, was down at some time.
    pub fn was_down(&self, interface: &str) -> bool {
        self.was_down.iter().any(|name| name == interface)
    }

    /// Whether it was at the end.
    pub fn is_down(&self, interface: &str) -> bool {
        self.is_down.iter().any(|name| name == interface)
    }

    /// Judges, with what the ports counted until the end.
    pub fn judge(&self, verdict: &mut Verdict, end: &RunEnd, ports: &[PortSample]) {
        if let RunEnd::Detached(interface) = end {
            verdict.field("detached", interface);
            verdict.fail_if(true, || {
                format!("somebody detached the XDP program of {interface}, or another run replaced it")
            });
        }
        if !self.names.is_empty() {
            verdict.field("name_changes", &self.names);
        }
        self.names.iter().for_each(|change| verdict.paragraph(&change.to_string()));
        let Some(first) = self.mtus.first() else { return };
        verdict.field("mtu_changes", &self.mtus);
        let since = too_long(ports).saturating_sub(self.before);
        verdict.paragraph(&format!("{first} while the command ran"));
        verdict.fail_if(since > 0, || format!("{since} packets were too long after {first}"));
        let shorter = self.mtus.iter().find(|change| self.sends && change.to < change.opened);
        verdict.fail_if(shorter.is_some(), || {
            let changed = shorter.map_or_else(String::new, ToString::to_string);
            format!("{changed}, and longer packets that were sent since are lost uncounted")
        });
    }
}

impl fmt::Display for NameChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is named {} now", self.from, self.to)
    }
}

impl fmt::Display for MtuChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, from, to, .. } = self;
        write!(f, "the MTU of {interface} changed from {from} to {to}")
    }
}

/// Packets that were longer than what they were for.
fn too_long(ports: &[PortSample]) -> u64 {
    let of = |at: &PortSample| at.nic.rx_too_long + at.nic.rx_too_many_buffers + at.nic.tx_too_long;
    ports.iter().map(of).sum()
}
