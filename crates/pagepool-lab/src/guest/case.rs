//! A case: what must hold in a guest.

use super::card::Iommu;

/// Why a case was skipped that a limit of time left out.
pub(super) const NO_TIME: &str = "there was no time left";

/// A guest that cases run in, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct CaseGuest {
    /// What cases call it.
    pub name: &'static str,
    /// The kernel, as [`KernelImage::find`](super::KernelImage::find) takes it.
    pub kernel: &'static str,
    /// What it has that others have not, in a few words, for the table.
    pub about: &'static str,
    /// Its cards.
    pub cards: &'static [&'static str],
    /// Its virtual CPUs.
    pub cpus: u32,
    /// Its NUMA nodes.
    pub nodes: u32,
    /// Its IOMMU.
    pub iommu: Iommu,
    /// The major version of QEMU that it requires.
    pub qemu: u32,
}

/// A row of the list: commands for the shell of a guest, and what is expected of them.
///
/// It holds if the commands end with status 0, print all expected texts, and the kernel warns of nothing.
/// With status 77 it is skipped, for the reason in the last line of the output.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of its [`CaseGuest`].
    pub guest: &'static str,
    /// Its name, one of its guest's.
    pub name: &'static str,
    /// The commands; `prelude.sh` has the functions that they use.
    pub script: &'static str,
    /// Texts that the output has.
    pub expected: &'static [&'static str],
    /// The longest that the commands may take.
    pub seconds: u32,
    /// Why it fails today. It is then printed as a known fault, and counts as skipped.
    pub known_fault: Option<&'static str>,
    /// It takes too long for CI: a run with a limit of time leaves it out.
    pub by_hand: bool,
}

impl Case {
    /// A case of 60 s that expects status 0 alone.
    pub(super) const fn new(guest: &'static str, name: &'static str, script: &'static str) -> Self {
        Self { guest, name, script, expected: &[], seconds: 60, known_fault: None, by_hand: false }
    }

    /// The crate whose tests the commands run, if they do: `net_test FILE` or `core_test FILE`.
    pub fn tests_of(&self) -> Option<&'static str> {
        let crates = [("net_test ", "pagepool-net"), ("core_test ", "pagepool")];
        crates.iter().find(|(call, _)| self.script.contains(call)).map(|(_, name)| *name)
    }

    /// Whether the commands use xdp-tools.
    pub(super) fn uses_xdp_tools(&self) -> bool {
        self.script.contains("/cases/xdp_tools")
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Ok,
    /// It does not, and why.
    Failed(String),
    /// It was not run, and why.
    Skipped(String),
    /// It failed, as the list says: the fault.
    KnownFault(&'static str),
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// What became of it.
    pub verdict: Verdict,
    /// The kernel's release, if it came up: `7.3.4+deb13-amd64`.
    pub kernel: String,
    /// What the commands printed.
    pub output: String,
    /// How long the commands took in the guest, in seconds.
    pub seconds: u32,
}

impl CaseResult {
    /// Whether the limit of time left it out.
    pub(super) fn had_no_time(&self) -> bool {
        matches!(&self.verdict, Verdict::Skipped(reason) if reason == NO_TIME)
    }

    /// The verdict in a few words; in a case that holds with what it notes, and the number of tests that were
    /// skipped.
    pub fn shown(&self) -> String {
        let skipped = self.output.lines().filter(|line| line.starts_with("SKIP ")).count();
        let notes = self.output.lines().filter_map(|line| line.strip_prefix("NOTE: "));
        match &self.verdict {
            Verdict::Ok => {
                let mut shown: Vec<_> =
                    ["ok".to_owned()].into_iter().chain(notes.map(str::to_owned)).collect();
                shown.extend((skipped > 0).then(|| format!("{skipped} skipped")));
                shown.join(", ")
            }
            Verdict::Failed(_) => "FAILED".into(),
            Verdict::Skipped(reason) => format!("skipped: {reason}"),
            Verdict::KnownFault(fault) => format!("known fault: {fault}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_tests_that_skip_are_told_in_a_case_that_holds() {
        let result = |output: &str, verdict| {
            let case = Case::new("g", "c", "");
            CaseResult { case, verdict, kernel: "6.1".into(), output: output.into(), seconds: 1 }.shown()
        };
        let output =
            "---- a stdout ----\nSKIP a: no card\nno SKIP here\n---- b stdout ----\nSKIP b: no card\n";
        assert_eq!(result(output, Verdict::Ok), "ok, 2 skipped");
        assert_eq!(result("test result: ok", Verdict::Ok), "ok");
        assert_eq!(result("a NOTE: b\nNOTE: zero copy\nSKIP x: y", Verdict::Ok), "ok, zero copy, 1 skipped");
        assert_eq!(result(output, Verdict::Failed("x".into())), "FAILED");
    }
}
