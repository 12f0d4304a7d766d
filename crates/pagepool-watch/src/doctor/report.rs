//! What the doctor says of its evidence.

use super::evidence::Evidence;
use super::rule::{Diagnosis, diagnose};
use super::rules::RULES;

/// The result of an [`Examination`](super::Examination).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DoctorReport {
    /// From the first to the last look.
    pub seconds: f64,
    /// What was found, the worst first.
    pub found: Vec<Diagnosis>,
    /// What could not be judged, in words. If it is not empty, no finding does not mean that all is well.
    pub not_judged: Vec<String>,
    /// What this machine lacks, and what no rule promises to see, in words.
    pub notes: Vec<String>,
    /// Number of processes that were examined.
    pub processes: usize,
    /// Number of their pools.
    pub pools: usize,
    /// Number of their AF_XDP sockets.
    pub sockets: usize,
    /// The interfaces of these sockets, in this network namespace.
    pub interfaces: Vec<String>,
    /// Number of the kernel's page pools that were examined.
    pub kernel_pools: usize,
}

impl DoctorReport {
    pub(crate) fn of(evidence: Evidence) -> Self {
        Self {
            seconds: evidence.seconds,
            found: diagnose(RULES, &evidence),
            processes: evidence.processes.len(),
            pools: evidence.processes.iter().map(|process| process.pools.len()).sum(),
            sockets: evidence.entries(&["socket"]).count(),
            interfaces: evidence.links.iter().map(|link| link.name.clone()).collect(),
            kernel_pools: evidence.kernel_pools.len(),
            not_judged: evidence.unseen.not_judged,
            notes: evidence.unseen.notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;

    #[test]
    fn what_was_looked_at_is_counted() {
        let mut evidence = healthy::evidence();
        let counts = |evidence: &Evidence| {
            let report = DoctorReport::of(evidence.clone());
            (report.processes, report.pools, report.sockets, report.interfaces.len(), report.kernel_pools)
        };
        assert_eq!(counts(&evidence), (1, 1, 1, 1, 1));
        evidence.processes.push(evidence.processes[0].clone());
        assert_eq!(counts(&evidence), (2, 2, 2, 1, 1));
    }
}
