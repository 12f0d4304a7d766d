//! Watches what packets pass when they leave through the kernel, but not through our ring: queueing
//! disciplines, tc filters, nftables rules, taps.
//!
//! What   [`EgressWatch`] says whether there is any. The kernel reports changes of the link and its queueing
//!        disciplines; the rest must be queried.
//! When   call [`hear`](EgressWatch::hear) before a packet takes another way than the one before it, and
//!        [`look`](EgressWatch::look) about every 10 ms.
//! Cost   `hear` without news is one system call of 0.2 µs. `look` is six of some microseconds, and one more
//!        for each 4 KiB of the list of taps, up to 64 KiB.

use std::io;

use pagepool_link::Netlink;
use pagepool_link::egress::changes::{Change, LinkChanges};
use pagepool_link::egress::rulesets::Rulesets;
use pagepool_link::egress::taps::Taps;

use crate::interface::lookup;
use crate::sys::clock::ticks;
use crate::sys::{bpf, errno};

/// Ticks between two looks: about 10 ms, from 7 ms (TSC of 5 GHz) to 34 ms (ticks of 1 ns).
const PERIOD: u64 = 1 << 25;

#[derive(Debug)]
pub(in crate::xsk) struct EgressWatch {
    index: u32,
    /// By which rules know the interface.
    name: String,
    changes: LinkChanges,
    /// `None` if the kernel has none, or does not say.
    rulesets: Option<Rulesets>,
    /// `None` without `/proc`: taps are not found.
    taps: Option<Taps>,
    has_queues: bool,
    has_filters: bool,
    has_rules: bool,
    has_taps: bool,
    looked: u64,
}

impl EgressWatch {
    /// Watches an interface in the calling thread's network namespace. Also returns what packets pass on
    /// their way out, except taps.
    pub(in crate::xsk) fn new(index: u32) -> io::Result<(Self, Option<String>)> {
        // Listens before the first look, to miss nothing.
        Ok(Self::over(LinkChanges::listen(index)?, index))
    }

    /// Leaves what `changes` reports to `hear`: the interface may be gone by now.
    fn over(changes: LinkChanges, index: u32) -> (Self, Option<String>) {
        let (name, queues, taps) = (lookup::name_of(index), queues(index), Taps::open().ok());
        let mut rulesets = Rulesets::open().ok();
        let rules = rulesets.as_mut().and_then(|rulesets| rulesets.filter(&name).ok());
        let this = Self {
            index,
            name,
            changes,
            // Each query to a kernel without nftables makes it search for the module.
            rulesets: rulesets.filter(|_| rules.is_some()),
            has_queues: queues.is_some(),
            has_filters: filters(index).unwrap_or(false),
            has_rules: rules == Some(true),
            has_taps: sees(taps.as_ref(), index),
            taps,
            looked: ticks(),
        };
        let passed = queues
            .or_else(|| this.has_filters.then(|| "traffic control (tc) programs".into()))
            .or_else(|| this.has_rules.then(|| "rules of nftables at the egress".into()));
        (this, passed)
    }

    /// Whether packets pass something that the ring bypasses, as far as known.
    pub(in crate::xsk) fn has_some(&self) -> bool {
        self.has_queues || self.has_filters || self.has_rules || self.has_taps
    }

    /// Whether it is time for `look`.
    #[inline]
    pub(in crate::xsk) fn is_due(&self) -> bool {
        ticks().wrapping_sub(self.looked) > PERIOD
    }

    /// Reads the kernel's reports. Returns whether the interface exists.
    pub(in crate::xsk) fn hear(&mut self) -> bool {
        match self.changes.read() {
            Change::Nothing => {}
            Change::Something => {
                self.has_queues = queues(self.index).is_some();
                self.name = lookup::name_of(self.index);
            }
            Change::Removed => return false,
        }
        true
    }

    /// Queries filters, rules and taps, then reads the kernel's reports. Returns whether the interface
    /// exists.
    pub(in crate::xsk) fn look(&mut self) -> bool {
        self.looked = ticks();
        self.has_filters = filters(self.index).unwrap_or(self.has_filters);
        let rules = self.rulesets.as_mut().and_then(|rulesets| rulesets.filter(&self.name).ok());
        self.has_rules = rules.unwrap_or(self.has_rules);
        self.has_taps = sees(self.taps.as_ref(), self.index);
        self.hear()
    }
}

fn sees(taps: Option<&Taps>, index: u32) -> bool {
    taps.is_some_and(|taps| taps.any_sees(index))
}

fn queues(index: u32) -> Option<String> {
    match Netlink::open().and_then(|mut netlink| netlink.qdiscs(index)).as_deref() {
        Ok([none]) if none == "noqueue" => None,
        Ok([]) => Some("the qdisc that the interface gets when it comes up".into()),
        Ok(some) => Some(format!("the qdisc {}", some.join(", "))),
        Err(error) => Some(format!("unknown qdiscs: {error}")),
    }
}

/// Whether packets pass filters; `None` if the thread may no longer query.
fn filters(index: u32) -> Option<bool> {
    match bpf::egress_programs(index) {
        Ok(programs) => Some(programs > 0),
        Err(error) if error.raw_os_error() == Some(errno::EPERM) => None,
        Err(_) => Some(false), // the kernel has no such filters
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf::Insn;
    use crate::veth;
    use pagepool_lab::{DropRule, Hook};
    use std::os::fd::AsFd;

    fn passed(index: u32) -> Option<String> {
        EgressWatch::new(index).unwrap().1
    }

    #[test]
    fn a_program_that_filters_what_goes_out_is_found() {
        if let Some(why) = veth::missing() {
            return println!("SKIP filters: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let index = lookup::look_up("near0").unwrap().index;
        let mut watch = EgressWatch::new(index).unwrap().0;
        assert_eq!((passed(index), watch.has_some()), (None, false));
        let op = |code| Insn { code, registers: 0, offset: 0, imm: 0 };
        let passes_all = bpf::load(&[op(0xb7), op(0x95)], bpf::Kind::Packet).unwrap(); // r0 = 0, exit
        match bpf::attach_to_egress(passes_all.as_fd(), index) {
            Err(why) => return println!("SKIP filters: it needs Linux 6.6: {why}"),
            Ok(_attached) => {
                assert_eq!(passed(index).unwrap(), "traffic control (tc) programs");
                assert!(watch.look() && watch.has_some(), "found while it runs");
            }
        }
        // A child of another test may hold the link between `fork` and `exec`.
        veth::wait_until("the program is gone", || passed(index).is_none());
        assert!(watch.look() && !watch.has_some());
        veth.set_up("near0", false);
        assert_eq!(passed(index), None, "down, and still without a queue");
    }

    #[test]
    fn rules_come_and_go_and_those_of_other_interfaces_are_none() {
        if let Some(why) = veth::missing() {
            return println!("SKIP rules of nftables: {why}");
        }
        let _veth = veth::Veth::new(2, 1500);
        let [mut near, mut other] =
            ["near0", "near1"].map(|name| EgressWatch::new(lookup::look_up(name).unwrap().index).unwrap().0);
        let rule = match DropRule::add(Hook::Egress, "near0") {
            Ok(rule) => rule,
            Err(why) => return println!("SKIP rules of nftables: it needs Linux 5.16: {why}"),
        };
        assert!(near.look() && near.has_some() && other.look() && !other.has_some());
        assert_eq!(passed(near.index).unwrap(), "rules of nftables at the egress");
        drop(rule);
        assert!(near.look() && !near.has_some());
        assert_eq!(passed(near.index), None);
    }

    #[test]
    fn taps_come_and_go_and_those_of_other_interfaces_are_none() {
        if let Some(why) = veth::missing() {
            return println!("SKIP taps: {why}");
        }
        let _veth = veth::Veth::new(2, 1500);
        let mut watch = EgressWatch::new(lookup::look_up("near0").unwrap().index).unwrap().0;
        let mut looks = || watch.look() && watch.has_some();
        let elsewhere = veth::Tap::new("near1");
        assert!(!looks());
        let tap = veth::Tap::new("near0");
        assert!(looks());
        drop(tap);
        // A child of another test may hold the tap between `fork` and `exec`.
        veth::wait_until("the tap is gone", || !looks());
        drop(elsewhere);
    }

    #[test]
    fn a_port_of_a_bridge_is_there_before_and_after() {
        let name = "a_port_of_a_bridge_is_there_before_and_after";
        if let Some(why) = veth::missing() {
            return println!("SKIP {name}: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let ip = |words: &str| {
            let done = std::process::Command::new("ip").args(words.split(' ')).output();
            let done = done.map_err(|error| error.to_string())?;
            done.status.success().then_some(()).ok_or(String::from_utf8_lossy(&done.stderr).into_owned())
        };
        if let Err(why) = ip("link add bridge0 type bridge") {
            return println!("SKIP {name}: {why}");
        }
        let mut watch = EgressWatch::new(lookup::look_up("near0").unwrap().index).unwrap().0;
        for words in
            ["set near0 master bridge0", "set near0 nomaster", "set near0 master bridge0", "del bridge0"]
        {
            ip(&format!("link {words}")).unwrap();
            assert!(watch.hear() && !watch.has_some(), "{words}");
        }
        ip("link del near0").unwrap();
        assert!(!watch.hear());
    }

    #[test]
    fn an_interface_that_was_removed_is_heard_of() {
        if let Some(why) = veth::missing() {
            return println!("SKIP removed interfaces: {why}");
        }
        let veth = veth::Veth::new(2, 1500);
        let [mut first, mut second] =
            ["near0", "near1"].map(|name| EgressWatch::new(lookup::look_up(name).unwrap().index).unwrap().0);
        veth.set_up("near1", false);
        veth.set_up("near1", true);
        assert!(first.hear() && second.hear(), "both are there");
        let mut netlink = Netlink::open().unwrap();
        let [index, other] = ["near0", "near1"].map(|name| netlink.link(name).unwrap().index);
        netlink.delete(index).unwrap();
        assert_eq!((first.hear(), second.hear()), (false, true));
        let changes = LinkChanges::listen(other).unwrap();
        netlink.delete(other).unwrap();
        assert!(!EgressWatch::over(changes, other).0.hear(), "removed before the first look");
    }
}
