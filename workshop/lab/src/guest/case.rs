//! A case: something that must work in a guest.

use super::card::Iommu;

pub(super) const NO_TIME: &str = "there was no time left";

/// A guest in which cases run, one after another.
#[derive(Clone, Copy, Debug)]
pub struct CaseGuest {
    /// The name by which cases refer to it.
    pub name: &'static str,
    /// The kernel, as [`KernelImage::find`](super::KernelImage::find) takes it.
    pub kernel: &'static str,
    /// What distinguishes it, for the table.
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

/// Commands for a guest's shell, and their expected results.
///
/// A case passes if the commands end with status 0 and print all expected texts, and the kernel prints no
/// warning. With status 77 it is skipped, for the reason in the last line of the output.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of its [`CaseGuest`].
    pub guest: &'static str,
    /// Its name, unique within its guest.
    pub name: &'static str,
    /// The commands, which use the functions of `prelude.sh`.
    pub script: &'static str,
    /// Texts that the output must contain.
    pub expected: &'static [&'static str],
    /// The time limit of the commands.
    pub seconds: u32,
    /// Why it fails today. It then counts as skipped.
    pub known_fault: Option<&'static str>,
    /// Whether it takes too long for CI.
    pub by_hand: bool,
}

impl Case {
    /// A limit of 60 s, and only status 0 expected.
    pub(super) const fn new(guest: &'static str, name: &'static str, script: &'static str) -> Self {
        Self { guest, name, script, expected: &[], seconds: 60, known_fault: None, by_hand: false }
    }

    /// The crate whose tests the commands run (`net_test FILE`, `link_test FILE` or `core_test FILE`).
    pub fn tests_of(&self) -> Option<&'static str> {
        let crates =
            [("net_test ", "pagepool-net"), ("link_test ", "pagepool-link"), ("core_test ", "pagepool")];
        crates.iter().find(|(call, _)| self.script.contains(call)).map(|(_, name)| *name)
    }

    /// Whether the commands run `pagepool-bench`.
    pub fn uses_bench(&self) -> bool {
        self.script.contains("$BENCH ")
    }

    /// Whether the commands require the module vhost_net.
    pub(super) fn uses_vhost_net(&self) -> bool {
        self.script.contains("/dev/vhost-net")
    }

    pub(super) fn uses_xdp_tools(&self) -> bool {
        self.script.contains("/cases/xdp_tools")
    }
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Ok,
    /// It failed; why.
    Failed(String),
    /// It was not run; why.
    Skipped(String),
    /// It failed with a known fault of the list.
    KnownFault(&'static str),
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// The outcome.
    pub verdict: Verdict,
    /// The kernel's release, if it booted: `7.3.4+deb13-amd64`.
    pub kernel: String,
    /// The output of the commands.
    pub output: String,
    /// The time of the commands, in seconds.
    pub seconds: u32,
}

impl CaseResult {
    pub(super) fn had_no_time(&self) -> bool {
        matches!(&self.verdict, Verdict::Skipped(reason) if reason == NO_TIME)
    }

    /// The verdict in a few words; with notes and the number of skipped tests if it passed.
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
    fn a_case_that_passes_reports_notes_and_skipped_tests() {
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
