//! Offloads that change what a command receives: it warns of them, or turns them off while it runs.

use std::time::Duration;

use pagepool_link::{HeldOffloads, LinkError, OffloadFault, OffloadSources, XdpMode};

use crate::report::{OWN_LINE, error_chain, in_words, output};
use crate::traffic::sockets::{Interface, Kernel, OpenedInterface};

/// The time between two looks whether an interface has another name.
const EVERY: Duration = Duration::from_secs(1);

/// The offloads that were turned off. Dropping it restores them, and warns if that fails. Drop it after the
/// XDP programs: on some links the kernel allows segmentation offloads only without a program.
pub struct OffloadsOff {
    fix: bool,
    /// The offload sources of each interface that packets come from, until the warnings are printed.
    sources: Vec<OffloadSources>,
    /// Each with the command that undoes it, as it was printed last.
    held: Vec<(HeldOffloads, String)>,
    looked: Duration,
    warned: Vec<Warned>,
}

/// What the user was warned of.
enum Warned {
    /// Of interfaces in this network namespace, whose names may change.
    Here(Box<OffloadFault>),
    /// The text: a fault keeps another network namespace alive, which should go with its last user.
    Elsewhere(String),
}

impl OffloadsOff {
    /// Finds whose offloads matter to these interfaces; this requires capabilities that a run gives up later.
    /// With `fix`, turns off now what can be turned off before anything is opened, because a card may
    /// restart.
    pub fn new(fix: bool, kernel: &mut Kernel, interfaces: &[Interface]) -> Result<Self, String> {
        let links = interfaces.iter().filter_map(|interface| interface.link.as_ref());
        let sources: Vec<_> = links.map(|link| OffloadSources::find(&mut kernel.netlink, link)).collect();
        let (held, warned, looked) = (Vec::new(), Vec::new(), Duration::ZERO);
        let mut this = Self { fix, sources, held, looked, warned };
        for at in 0..if fix { this.sources.len() } else { 0 } {
            for fault in faults(kernel, &mut this.sources[at], XdpMode::Native)? {
                this.hold(&fault)?;
            }
        }
        Ok(this)
    }

    /// To call when the mode of the XDP programs is known: turns off the rest, and warns of what is on.
    pub fn warn(&mut self, kernel: &mut Kernel, opened: &[OpenedInterface]) -> Result<(), String> {
        let opened = opened.iter().filter(|opened| opened.has_sockets());
        for (mut sources, opened) in std::mem::take(&mut self.sources).into_iter().zip(opened) {
            let mode = if opened.is_generic() { XdpMode::Generic } else { XdpMode::Native };
            for fault in faults(kernel, &mut sources, mode)? {
                match (self.fix, self.fix && self.hold(&fault)?) {
                    (_, true) => still_on(&fault).iter().for_each(|fault| self.warn_of(fault)),
                    _ => self.warn_of(&fault),
                }
            }
        }
        Ok(())
    }

    fn warn_of(&mut self, fault: &OffloadFault) {
        output::warn(warning(self.fix, fault));
        self.warned.push(match fault.owner.is_here() {
            true => Warned::Here(Box::new(fault.clone())),
            false => Warned::Elsewhere(text(fault)),
        });
    }

    /// Prints the new command that undoes a change, if the interface was renamed. `at`: the time since the
    /// start.
    pub fn look(&mut self, at: Duration) {
        if at < self.looked + EVERY {
            return;
        }
        self.looked = at;
        for (held, undo) in &mut self.held {
            let now = held.undo();
            if now != *undo {
                output::note(format_args!(
                    "an interface was renamed; if this command is killed, turn its offloads on \
                     with{OWN_LINE}{now}"
                ));
                *undo = now;
            }
        }
    }

    /// The warnings for the verdict, with the current names of interfaces.
    pub fn warned(&mut self, kernel: &mut Kernel) -> Vec<String> {
        let text = |warned| match warned {
            Warned::Here(fault) => text(&fault.named_now(&mut kernel.netlink)),
            Warned::Elsewhere(text) => text,
        };
        std::mem::take(&mut self.warned).into_iter().map(text).collect()
    }

    /// Turns off the offloads of a fault. False if that cannot be done.
    fn hold(&mut self, fault: &OffloadFault) -> Result<bool, String> {
        match fault.hold_off() {
            Ok(Some(mut held)) => {
                let off: Vec<_> = fault.offloads.iter().map(|offload| offload.name()).collect();
                let are = if off.len() == 1 { "is" } else { "are" };
                let (off, owner, undo) = (off.join(", "), &fault.owner, held.undo());
                output::note(format_args!(
                    "{off} of {owner} {are} off until this command ends; if it is killed, undo that \
                     with{OWN_LINE}{undo}"
                ));
                self.held.push((held, undo));
                Ok(true)
            }
            Ok(None) | Err(LinkError::FixedOffload { .. }) => Ok(false),
            Err(error) => Err(error_chain(&error)),
        }
    }
}

/// The offloads that change what arrives, for a program in this mode.
fn faults(kernel: &mut Kernel, of: &mut OffloadSources, mode: XdpMode) -> Result<Vec<OffloadFault>, String> {
    of.faults(&mut kernel.netlink, &kernel.ethtool, mode).map_err(in_words)
}

/// What is wrong, and the command against it.
fn text(fault: &OffloadFault) -> String {
    with_command(fault, fault.instruction())
}

fn with_command(fault: &OffloadFault, instruction: &str) -> String {
    let command = fault.command().map(|command| format!(". {instruction}:{OWN_LINE}{command}"));
    fault.description() + &command.unwrap_or_default()
}

/// `fix`: --fix-offloads is given.
fn warning(fix: bool, fault: &OffloadFault) -> String {
    let head = match (fix, fault.owner.is_here(), fault.owner.hidden()) {
        (false, true, _) => return with_command(fault, "Use --fix-offloads, or run"),
        (false, false, _) => "",
        (true, _, Some(_)) => "--fix-offloads changes nothing in namespaces that it cannot see: ",
        (true, false, None) => "--fix-offloads changes nothing in other network namespaces: ",
        (true, true, None) => "--fix-offloads cannot help here: ",
    };
    head.to_owned() + &text(fault)
}

impl Drop for OffloadsOff {
    fn drop(&mut self) {
        for (mut held, _) in self.held.drain(..) {
            let undo = held.undo();
            if let Err(error) = held.restore() {
                let why = error_chain(&error);
                output::warn(format_args!("cannot turn the offloads on again: {why}; run{OWN_LINE}{undo}"));
            }
        }
    }
}

/// The part of a fault that the driver keeps on when the rest is off.
fn still_on(fault: &OffloadFault) -> Option<OffloadFault> {
    let mut rest = fault.clone();
    rest.offloads.clear();
    (!rest.fixed.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use pagepool_link::{Netlink, Offload, offload_faults};

    use super::*;

    #[test]
    fn after_a_fix_the_warning_names_only_offloads_that_stay_on() {
        let (mut netlink, ethtool) = (Netlink::open().unwrap(), pagepool_link::Ethtool::open().unwrap());
        let lo = netlink.link("lo").unwrap();
        let faults = offload_faults(&mut netlink, &ethtool, &lo, XdpMode::Generic).unwrap();
        let Some(mut fault) = faults.into_iter().find(|fault| !fault.offloads.is_empty()) else {
            return println!("SKIP: GRO of lo is off");
        };
        fault.fixed.clear();
        assert_eq!(still_on(&fault), None, "all is off");
        let said = warning(false, &fault);
        let run = ". Use --fix-offloads, or run:\0ethtool -K lo gro off";
        assert!(said.ends_with(run), "{said}");
        fault.fixed.push(Offload::RxVlan);
        let kept = still_on(&fault).unwrap();
        assert!(!warning(false, &kept).contains("--fix-offloads"), "it cannot help");
        let said = kept.to_string();
        assert!(said.contains(Offload::RxVlan.name()) && !said.contains(Offload::Gro.name()), "{said}");
    }
}
