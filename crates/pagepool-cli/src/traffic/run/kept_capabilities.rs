//! The capabilities that a run keeps after opening everything.
//!
//! What  opening requires capabilities. On most kernels, moving packets, closing, detaching the XDP program
//!       and leaving promiscuous mode do not. Packets come from strangers, so every thread gives up what the
//!       run no longer needs, for ever.
//! Why   some are kept: for bpf(2), where the kernel restricts all of it (refined in Linux 5.19); for a
//!       packet socket to wait for the kernel, where `membarrier` cannot; with BPF batch, to query the
//!       filters of traffic control; and to restore offloads at the end, or take the XDP program out of a
//!       chain with others.

use crate::sys::{self, CapabilitySet};

/// The first kernel whose `kernel.unprivileged_bpf_disabled` restricts only loading.
const REFINED: (u32, u32) = (5, 19);

/// What a run does, and where, that may require capabilities.
#[derive(Clone, Copy, Debug)]
pub struct RunNeeds {
    /// The kernel's version, and whether it restricts bpf(2).
    pub kernel: (u32, u32),
    pub bpf_is_restricted: bool,
    /// The kernel waits for its readers on request (`membarrier`).
    pub has_grace_period: bool,
    pub sends_by_batch: bool,
    /// Offloads, or flow tables, are restored at the end.
    pub restores_settings: bool,
    /// The XDP program is removed from a chain with others at the end.
    pub leaves_chain: bool,
}

impl RunNeeds {
    pub fn here(sends_by_batch: bool, restores_settings: bool, leaves_chain: bool) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            kernel: version(&read("/proc/sys/kernel/osrelease")),
            bpf_is_restricted: read("/proc/sys/kernel/unprivileged_bpf_disabled").trim() != "0",
            has_grace_period: sys::has_grace_period(),
            sends_by_batch,
            restores_settings,
            leaves_chain,
        }
    }

    /// The capabilities to keep, of those that the thread may use.
    pub fn kept(&self, permitted: CapabilitySet) -> CapabilitySet {
        let mut kept = CapabilitySet::empty();
        if self.bpf_is_restricted && self.kernel < REFINED || self.sends_by_batch {
            kept |= CapabilitySet::BPF;
        }
        if self.sends_by_batch || self.restores_settings {
            kept |= CapabilitySet::NET_ADMIN;
        }
        if self.leaves_chain {
            kept |= CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON;
            kept |= CapabilitySet::SYS_ADMIN; // to find the programs of others by their ids
        }
        if !self.has_grace_period {
            kept |= CapabilitySet::NET_RAW;
        }
        // Without one of these two, bpf(2) accepts CAP_SYS_ADMIN.
        let instead = kept & (CapabilitySet::BPF | CapabilitySet::NET_ADMIN);
        if kept.contains(CapabilitySet::BPF) && !permitted.contains(instead) {
            kept |= CapabilitySet::SYS_ADMIN;
        }
        kept & permitted
    }
}

/// The first two numbers of a version; 0 for a missing one.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|of: char| !of.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("6.18.44-fc-v595\n"), (6, 18));
        assert_eq!((version("5.10"), version(""), version("7")), ((5, 10), (0, 0), (7, 0)));
    }

    #[test]
    fn a_run_keeps_only_the_capabilities_that_it_needs() {
        let all = CapabilitySet::all();
        let usual = RunNeeds {
            kernel: (6, 18),
            bpf_is_restricted: true,
            has_grace_period: true,
            sends_by_batch: false,
            restores_settings: false,
            leaves_chain: false,
        };
        assert_eq!(usual.kept(all), CapabilitySet::empty());
        let old = RunNeeds { kernel: (5, 10), ..usual };
        assert_eq!(old.kept(all), CapabilitySet::BPF);
        assert_eq!(old.kept(CapabilitySet::SYS_ADMIN), CapabilitySet::SYS_ADMIN);
        assert_eq!(RunNeeds { bpf_is_restricted: false, ..old }.kept(all), CapabilitySet::empty());
        assert_eq!(RunNeeds { has_grace_period: false, ..usual }.kept(all), CapabilitySet::NET_RAW);
        let batch = RunNeeds { sends_by_batch: true, ..usual };
        assert_eq!(batch.kept(all), CapabilitySet::BPF | CapabilitySet::NET_ADMIN);
        assert_eq!(RunNeeds { restores_settings: true, ..usual }.kept(all), CapabilitySet::NET_ADMIN);
        let beside = RunNeeds { leaves_chain: true, ..usual }.kept(all);
        assert!(beside.contains(CapabilitySet::SYS_ADMIN) && !beside.contains(CapabilitySet::NET_RAW));
        assert_eq!(batch.kept(CapabilitySet::empty()), CapabilitySet::empty());
    }
}
