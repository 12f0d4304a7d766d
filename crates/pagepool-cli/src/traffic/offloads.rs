//! Offloads that falsify what a command receives: warned of, or held off while it runs.

use pagepool_net::link::{HeldOffloads, NetError, OffloadFault, XdpMode};

use super::interface::{Interface, Kernel};
use super::setup::OpenedInterface;
use crate::report::error::error_chain;
use crate::report::output;

/// The offloads that are held off. They are put back when it is dropped, with a warning where that fails.
/// That has to be after the XDP programs: to some links the kernel gives segmentation offloads only without.
pub struct OffloadsOff {
    fix: bool,
    held: Vec<HeldOffloads>,
    /// What was warned of, for the verdict.
    pub warned: Vec<String>,
}

impl OffloadsOff {
    /// Turns off, if that is asked for, what can be before anything is opened: a card may restart for it.
    pub fn new(fix: bool, kernel: &mut Kernel, interfaces: &[Interface]) -> Result<Self, String> {
        let mut this = Self { fix, held: Vec::new(), warned: Vec::new() };
        for interface in interfaces.iter().filter(|_| fix) {
            for fault in kernel.offload_faults(interface, XdpMode::Native)? {
                this.hold(&fault)?;
            }
        }
        Ok(this)
    }

    /// When it is known where the XDP programs run: turns off what else is to be, and warns of what is on.
    pub fn warn(
        &mut self,
        kernel: &mut Kernel,
        interfaces: &[Interface],
        opened: &[OpenedInterface],
    ) -> Result<(), String> {
        for (interface, opened) in interfaces.iter().zip(opened) {
            let mode = if opened.is_generic() { XdpMode::Generic } else { XdpMode::Native };
            for fault in kernel.offload_faults(interface, mode)? {
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
        self.warned.push(fault.to_string());
    }

    /// Turns the offloads of a fault off, and says whether that can be done.
    fn hold(&mut self, fault: &OffloadFault) -> Result<bool, String> {
        match fault.hold_off() {
            Ok(held) => {
                let off: Vec<_> = fault.offloads.iter().map(|offload| offload.name()).collect();
                let are = if off.len() == 1 { "is" } else { "are" };
                let (link, off) = (fault.link().map_or("", |link| &link.name), off.join(", "));
                output::note(format_args!(
                    "{off} of {link} {are} off until this command ends; if it is killed, undo that by \
                     {}",
                    held.undo()
                ));
                self.held.push(held);
                Ok(true)
            }
            Err(NetError::HiddenPeer { .. } | NetError::FixedOffload { .. }) => Ok(false),
            Err(error) => Err(error_chain(&error)),
        }
    }
}

/// `fix`: --fix-offloads is given.
fn warning(fix: bool, fault: &OffloadFault) -> String {
    match (fix, fault.link(), fault.command()) {
        (true, None, _) => format!("--fix-offloads cannot help in another network namespace: {fault}"),
        (true, Some(_), _) => format!("--fix-offloads cannot help here: {fault}"),
        (false, Some(_), Some(_)) => format!("{fault}. Or use --fix-offloads"),
        (false, ..) => fault.to_string(),
    }
}

impl Drop for OffloadsOff {
    fn drop(&mut self) {
        for held in self.held.drain(..) {
            let undo = held.undo();
            if let Err(error) = held.restore() {
                let why = error_chain(&error);
                output::warn(format_args!("offloads stay off: {why}; use {undo}"));
            }
        }
    }
}

/// What of a fault the driver keeps on, when the rest is off.
fn still_on(fault: &OffloadFault) -> Option<OffloadFault> {
    let mut rest = fault.clone();
    rest.offloads.clear();
    (!rest.fixed.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use pagepool_net::link::{Netlink, Offload, offload_faults};

    use super::*;

    #[test]
    fn what_the_driver_keeps_on_is_warned_of_beside_what_was_turned_off() {
        let (mut netlink, ethtool) = (Netlink::open().unwrap(), pagepool_net::link::Ethtool::open().unwrap());
        let lo = netlink.link("lo").unwrap();
        let faults = offload_faults(&mut netlink, &ethtool, &lo, XdpMode::Generic).unwrap();
        let Some(mut fault) = faults.into_iter().find(|fault| !fault.offloads.is_empty()) else {
            return println!("SKIP: GRO of lo is off");
        };
        fault.fixed.clear();
        assert_eq!(still_on(&fault), None, "all is off");
        assert!(warning(false, &fault).ends_with(". Or use --fix-offloads"));
        fault.fixed.push(Offload::RxVlan);
        let kept = still_on(&fault).unwrap();
        assert!(!warning(false, &kept).contains("--fix-offloads"), "it cannot help");
        let said = kept.to_string();
        assert!(said.contains(Offload::RxVlan.name()) && !said.contains(Offload::Gro.name()), "{said}");
    }
}
