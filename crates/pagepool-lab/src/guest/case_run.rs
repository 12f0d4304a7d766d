//! Runs cases: those of one guest in one boot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::card::GuestCard;
use super::case::{Case, CaseGuest, CaseResult, Verdict};
use super::case_list::PARTS;
use super::error::GuestError;
use super::host_tools::HostTools;
use super::kernel_image::KernelImage;
use super::machine::Guest;
use super::run::GuestEnd;

/// What boots and ends around the cases.
const BOOT_SECONDS: u64 = 90;

/// Why a case was skipped that `within` left out.
const NO_TIME: &str = "there was no time left";

/// What cases run, as files of this machine.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The command `pagepool`.
    pub pagepool: PathBuf,
    /// Test binaries by name.
    pub tests: BTreeMap<String, PathBuf>,
}

/// The cases of one guest, to be run together.
#[derive(Clone, Debug)]
pub struct CaseRun {
    guest: CaseGuest,
    cases: Vec<Case>,
    within: Option<Duration>,
}

impl CaseRun {
    /// The cases of a guest.
    pub fn new(guest: CaseGuest, cases: Vec<Case>) -> Self {
        Self { guest, cases, within: None }
    }

    /// Ends the guest after this time at the latest; cases that did not end by then are skipped.
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }

    /// Boots the guest and runs its cases. Where this machine lacks something, all of them are skipped.
    pub fn run(&self, tools: &HostTools, programs: &Programs) -> Vec<CaseResult> {
        let mut output = Vec::new();
        if self.within.is_some_and(|time| time.as_secs() < BOOT_SECONDS) {
            return self.results("", Err(GuestError::Missing(NO_TIME.into())));
        }
        let end = self.prepared(tools, programs).and_then(|guest| {
            let command = ["sh".to_owned(), "/cases/all".to_owned()];
            guest.run(&command, &mut output, &mut std::io::sink())
        });
        let said = String::from_utf8_lossy(&output);
        self.results(&said, end)
    }

    fn prepared(&self, tools: &HostTools, programs: &Programs) -> Result<Guest, GuestError> {
        let version = tools.qemu_version();
        if version < self.guest.qemu {
            let needed = self.guest.qemu;
            return Err(GuestError::Missing(format!("requires QEMU {needed}; this is {version}")));
        }
        let mut guest = Guest::new(tools.clone(), KernelImage::find(tools, self.guest.kernel)?);
        guest.nodes = self.guest.nodes;
        guest.iommu = self.guest.iommu;
        guest.modules = vec!["veth".into()];
        // Each socket that closes waits for grace periods of RCU, which this shortens.
        guest.append = "rcupdate.rcu_expedited=1".into();
        for card in self.guest.cards {
            guest.cards.push(GuestCard::new(card)?);
        }
        guest.files.push((programs.pagepool.clone(), "/root/pagepool".into()));
        for name in self.cases.iter().filter_map(Case::test_binary) {
            if let Some(binary) = programs.tests.get(name) {
                guest.files.push((binary.clone(), format!("/root/tests/{name}")));
            }
        }
        guest.texts.push(("cases/all".into(), include_str!("cases.sh").into()));
        guest.texts.push(("cases/prelude".into(), include_str!("prelude.sh").into()));
        for (name, script) in PARTS {
            guest.texts.push((format!("cases/{name}"), format!("{script}\n")));
        }
        let mut seconds = BOOT_SECONDS;
        for (number, case) in self.cases.iter().enumerate() {
            guest.texts.push((format!("cases/{number}.sh"), format!("{}\n", case.script)));
            guest.texts.push((format!("cases/{number}.seconds"), case.seconds.to_string()));
            seconds += u64::from(case.seconds);
        }
        guest.timeout = Duration::from_secs(seconds);
        guest.timeout = self.within.map_or(guest.timeout, |time| time.min(guest.timeout));
        Ok(guest)
    }

    fn results(&self, said: &str, end: Result<GuestEnd, GuestError>) -> Vec<CaseResult> {
        let (mut outputs, mut ends) = (BTreeMap::<usize, String>::new(), BTreeMap::new());
        let (mut kernel, mut current) = (String::new(), 0);
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["@@kernel", release] => release.clone_into(&mut kernel),
                ["@@begin", number] => current = number.parse().unwrap_or(0),
                ["@@end", number, status, seconds] => {
                    let end = (status.parse().unwrap_or(-1), seconds.parse().unwrap_or(0));
                    ends.insert(number.parse().unwrap_or(0), end);
                }
                _ => *outputs.entry(current).or_default() += &format!("{line}\n"),
            }
        }
        let why = match end {
            Err(GuestError::Missing(reason)) => Verdict::Skipped(reason),
            Err(error) => Verdict::Failed(error.to_string()),
            Ok(end) if end.late && self.within.is_some() => Verdict::Skipped(NO_TIME.into()),
            Ok(end) => {
                Verdict::Failed(format!("the guest ended before; its console:\n{}", tail(&end.console)))
            }
        };
        let result = |(number, case): (usize, &Case)| {
            let output = outputs.remove(&number).unwrap_or_default();
            let (verdict, seconds) = match ends.get(&number) {
                Some(&(status, seconds)) => (judged(case, status, &output), seconds),
                None => (why.clone(), 0),
            };
            CaseResult { case: *case, verdict, kernel: kernel.clone(), output, seconds }
        };
        self.cases.iter().enumerate().map(result).collect()
    }
}

fn judged(case: &Case, status: i32, output: &str) -> Verdict {
    let missing = case.expected.iter().find(|text| !output.contains(**text));
    let reason = match (status, missing) {
        (0, None) => return Verdict::Ok,
        (77, _) => {
            let last = output.trim_end().lines().last().unwrap_or_default();
            return Verdict::Skipped(last.trim_start_matches("SKIP: ").to_owned());
        }
        (0, Some(text)) => format!("its output has no `{text}`"),
        (137, _) => format!("it was ended after {} s", case.seconds),
        _ => format!("status {status}"),
    };
    case.known_fault.map_or(Verdict::Failed(reason), Verdict::KnownFault)
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::card::Iommu;
    use super::*;

    const GUEST: CaseGuest =
        CaseGuest { name: "g", kernel: "6.1", about: "", cards: &[], nodes: 1, iommu: Iommu::None, qemu: 7 };

    fn verdicts(cases: &[Case], said: &str) -> Vec<Verdict> {
        let end = GuestEnd { status: None, late: true, console: "last words".into(), took: Duration::ZERO };
        let results = CaseRun::new(GUEST, cases.to_vec()).results(said, Ok(end));
        results.into_iter().map(|result| result.verdict).collect()
    }

    #[test]
    fn a_case_is_judged_by_status_texts_and_known_faults() {
        let plain = Case::new("g", "plain", "");
        let text = Case { expected: &["PASS"], ..plain };
        let fault = Case { known_fault: Some("because"), ..plain };
        let cases = [plain, text, text, fault, plain, plain, plain];
        let said = ["@@kernel 6.1", "@@begin 0", "@@end 0 0 1", "@@begin 1", "PASS", "@@end 1 0 1"];
        let more = ["@@begin 2", "@@end 2 0 1", "@@begin 3", "@@end 3 1 1", "@@begin 4", "SKIP: why", ""];
        let last = ["@@end 4 77 1", "@@begin 5", "@@end 5 137 60"];
        let said = [&said[..], &more, &last].concat().join("\n");
        let verdicts = verdicts(&cases, &said);
        assert_eq!(verdicts[..2], [Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts[2], Verdict::Failed("its output has no `PASS`".into()));
        assert_eq!(verdicts[3..5], [Verdict::KnownFault("because"), Verdict::Skipped("why".into())]);
        assert_eq!(verdicts[5], Verdict::Failed("it was ended after 60 s".into()));
        assert!(matches!(&verdicts[6], Verdict::Failed(text) if text.contains("last words")));
    }

    #[test]
    fn cases_that_the_time_left_out_are_skipped_and_others_judged() {
        let run = CaseRun::new(GUEST, vec![Case::new("g", "ended", ""), Case::new("g", "not ended", "")]);
        let end = GuestEnd { status: None, late: true, console: "".into(), took: Duration::ZERO };
        let results =
            run.within(Duration::from_secs(100)).results("@@begin 0\n@@end 0 1 3\n@@begin 1", Ok(end));
        assert_eq!(results[0].verdict, Verdict::Failed("status 1".into()));
        assert_eq!(results[1].verdict, Verdict::Skipped(NO_TIME.into()));
    }
}
