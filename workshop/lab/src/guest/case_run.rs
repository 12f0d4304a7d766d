//! Runs the cases of one guest in one boot.

mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::bridges::bridged;
use super::card::GuestCard;
use super::case::{Case, CaseGuest, CaseResult, NO_TIME, Verdict};
use super::case_list::PARTS;
use super::error::GuestError;
use super::host_tools::{HostTools, in_path};
use super::kernel_image::KernelImage;
use super::machine::Guest;
use super::run::GuestEnd;
pub use turn::CaseTurn;

/// For boot and shutdown.
const BOOT: Duration = Duration::from_secs(90);

const XDP_TOOLS: [&str; 2] = ["/usr/sbin/xdp-loader", "/usr/sbin/xdp-filter"];

/// Printed by a test binary that ran none of its tests.
const NO_TESTS: &str = "test result: ok. 0 passed";

/// The programs that cases run, as files of this machine.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The command `pagepool`.
    pub pagepool: PathBuf,
    /// The program `pagepool-bench`, if a case uses it.
    pub bench: PathBuf,
    /// The test binaries (`tests/all.rs`), by crate name.
    pub tests: BTreeMap<String, PathBuf>,
}

/// The cases of one guest, which run together.
#[derive(Clone, Debug)]
pub struct CaseRun {
    guest: CaseGuest,
    cases: Vec<Case>,
    within: Option<Duration>,
}

impl CaseRun {
    /// Creates a run of these cases in this guest.
    pub fn new(guest: CaseGuest, cases: Vec<Case>) -> Self {
        Self { guest, cases, within: None }
    }

    /// Downloads nothing, and ends the guest after this time. Cases not finished by then are skipped; a case
    /// that hung until then fails.
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }

    /// Boots the guest and runs its cases. If this machine lacks something, all are skipped.
    pub fn run(&self, tools: &HostTools, programs: &Programs) -> Vec<CaseResult> {
        let begun = Instant::now();
        let mut heard = Heard::new();
        let end = self.prepared(tools, programs).and_then(|mut guest| {
            if let Some(time) = self.within {
                let left = time.saturating_sub(begun.elapsed());
                if left < BOOT {
                    return Err(GuestError::Missing(NO_TIME.into()));
                }
                guest.timeout = guest.timeout.min(left);
            }
            let command = ["sh".to_owned(), "/cases/all".to_owned()];
            heard = Heard::new();
            guest.run(&command, &mut heard, &mut std::io::sink())
        });
        self.results(&heard.said, heard.quiet(), end)
    }

    fn whole(&self) -> Duration {
        BOOT + self.cases.iter().map(|case| Duration::from_secs(case.seconds.into())).sum()
    }

    fn prepared(&self, tools: &HostTools, programs: &Programs) -> Result<Guest, GuestError> {
        let version = tools.qemu_version();
        if version < self.guest.qemu {
            let needed = self.guest.qemu;
            return Err(GuestError::Missing(format!("requires QEMU {needed}; this is {version}")));
        }
        let mut guest = Guest::new(tools.clone(), self.kernel(tools)?);
        guest.cpus = self.guest.cpus;
        guest.nodes = self.guest.nodes;
        guest.iommu = self.guest.iommu;
        guest.modules = ["veth", "sch_tbf", "8021q", "nf_tables", "pktgen"].map(str::to_owned).into();
        if self.cases.iter().any(Case::uses_vhost_net) {
            guest.modules.push("vhost_net".into()); // and tun, which it requires
        }
        // Each closing socket waits for RCU grace periods, which this shortens.
        guest.append = "rcupdate.rcu_expedited=1".into();
        for card in self.guest.cards {
            guest.cards.push(GuestCard::new(card)?);
        }
        guest.taps = bridged(&guest.cards)?;
        if let Some(setpriv) = in_path(Path::new("setpriv")) {
            guest.files.push((setpriv, "/root/setpriv".into()));
        }
        guest.files.push((programs.pagepool.clone(), "/root/pagepool".into()));
        if self.cases.iter().any(Case::uses_bench) {
            guest.files.push((programs.bench.clone(), "/root/pagepool-bench".into()));
        }
        for name in self.cases.iter().filter_map(Case::tests_of).collect::<BTreeSet<_>>() {
            if let Some(binary) = programs.tests.get(name) {
                guest.files.push((binary.clone(), format!("/root/tests/{name}")));
            }
        }
        if self.cases.iter().any(Case::uses_xdp_tools) {
            guest.files.extend(xdp_tools().map(|path| (path.clone(), path.display().to_string())));
        }
        guest.texts.push(("cases/all".into(), include_str!("cases.sh").into()));
        guest.texts.push(("cases/prelude".into(), include_str!("prelude.sh").into()));
        for (name, script) in PARTS {
            guest.texts.push((format!("cases/{name}"), format!("{script}\n")));
        }
        for (number, case) in self.cases.iter().enumerate() {
            guest.texts.push((format!("cases/{number}.sh"), format!("{}\n", case.script)));
            guest.texts.push((format!("cases/{number}.seconds"), case.seconds.to_string()));
        }
        guest.timeout = self.whole();
        Ok(guest)
    }

    /// Downloads a kernel only without a time limit: a download may take long.
    fn kernel(&self, tools: &HostTools) -> Result<KernelImage, GuestError> {
        let name = self.guest.kernel;
        if self.within.is_none() {
            return KernelImage::find(tools, name);
        }
        let text = || format!("Linux {name} is not in the cache; guest fetch {name} downloads it");
        KernelImage::cached(tools, name).ok_or_else(|| GuestError::Missing(text()))
    }

    /// Results from the guest's output, and from the time since it last marked a case.
    fn results(&self, said: &[u8], quiet: Duration, end: Result<GuestEnd, GuestError>) -> Vec<CaseResult> {
        let said = String::from_utf8_lossy(said);
        let (mut outputs, mut ends) = (BTreeMap::<usize, String>::new(), BTreeMap::new());
        let (mut kernel, mut current, mut running) = (String::new(), 0, None);
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["@@kernel", release] => release.clone_into(&mut kernel),
                ["@@begin", number] => {
                    current = number.parse().unwrap_or(0);
                    running = self.cases.get(current);
                }
                ["@@end", number, status, seconds] => {
                    let end = (status.parse().unwrap_or(-1), seconds.parse().unwrap_or(0));
                    ends.insert(number.parse().unwrap_or(0), end);
                    running = None;
                }
                _ => *outputs.entry(current).or_default() += &format!("{line}\n"),
            }
        }
        let why = match end {
            Err(GuestError::Missing(reason)) => Verdict::Skipped(reason),
            Err(error) => Verdict::Failed(error.to_string()),
            Ok(end) => self.why_it_ended(&end, running, quiet),
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

    /// Why cases have no result: the guest was cut short; or it hung, if it marked nothing for longer than
    /// the running case may take.
    fn why_it_ended(&self, end: &GuestEnd, running: Option<&Case>, quiet: Duration) -> Verdict {
        let may = running.map_or(BOOT, |case| Duration::from_secs(case.seconds.into()));
        if end.late && quiet < may && self.within.is_some_and(|time| time < self.whole()) {
            return Verdict::Skipped(NO_TIME.into());
        }
        let how = if end.late { "the guest hung" } else { "the guest ended before" };
        Verdict::Failed(format!("{how}; its console:\n{}", tail(&end.console)))
    }
}

/// The programs and the folders of BPF objects of xdp-tools.
fn xdp_tools() -> impl Iterator<Item = PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let objects = libraries.map(|of| of.path().join("bpf"));
    XDP_TOOLS.map(PathBuf::from).into_iter().chain(objects).filter(|path| path.exists())
}

/// The guest's output, and when it last began or ended a case.
struct Heard {
    said: Vec<u8>,
    marked: Instant,
}

impl Heard {
    fn new() -> Self {
        Self { said: Vec::new(), marked: Instant::now() }
    }

    fn quiet(&self) -> Duration {
        self.marked.elapsed()
    }
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // A line may arrive in parts.
        let line = self.said.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.said.extend_from_slice(bytes);
        if self.said[line..].split(|&byte| byte == b'\n').any(|line| line.starts_with(b"@@")) {
            self.marked = Instant::now();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn judged(case: &Case, status: i32, output: &str) -> Verdict {
    let missing = case.expected.iter().find(|text| !output.contains(**text));
    let reason = match (status, missing) {
        (0, None) if output.contains(NO_TESTS) => "the binary has no test of this name".into(),
        (0, None) => return Verdict::Ok,
        (77, _) => {
            let last = output.trim_end().lines().last().unwrap_or_default();
            return Verdict::Skipped(last.trim_start_matches("SKIP: ").to_owned());
        }
        (0, Some(text)) => format!("its output has no `{text}`"),
        (137, _) => format!("it was killed after {} s", case.seconds),
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

    const GUEST: CaseGuest = CaseGuest {
        name: "g",
        kernel: "6.1",
        about: "",
        cards: &[],
        cpus: 2,
        nodes: 1,
        iommu: Iommu::None,
        qemu: 7,
    };

    /// Verdicts on this output, whose last mark came `seconds` ago.
    fn verdicts(run: &CaseRun, said: &str, seconds: u64, late: bool) -> Vec<Verdict> {
        let end = GuestEnd { status: None, late, console: "last words".into(), took: Duration::ZERO };
        let quiet = Duration::from_secs(seconds);
        run.results(said.as_bytes(), quiet, Ok(end)).into_iter().map(|result| result.verdict).collect()
    }

    #[test]
    fn a_case_is_judged_by_status_texts_and_known_faults() {
        let plain = Case::new("g", "plain", "");
        let text = Case { expected: &["PASS"], ..plain };
        let fault = Case { known_fault: Some("because"), ..plain };
        let cases = [plain, text, text, fault, plain, plain, plain, plain];
        let said = ["@@kernel 6.1", "@@begin 0", "@@end 0 0 1", "@@begin 1", "PASS", "@@end 1 0 1"];
        let more = ["@@begin 2", "@@end 2 0 1", "@@begin 3", "@@end 3 1 1", "@@begin 4", "SKIP: why", ""];
        let last = ["@@end 4 77 1", "@@begin 5", "@@end 5 137 60", "@@begin 6", NO_TESTS, "@@end 6 0 1"];
        let said = [&said[..], &more, &last].concat().join("\n");
        let verdicts = verdicts(&CaseRun::new(GUEST, cases.to_vec()), &said, 0, false);
        assert_eq!(verdicts[..2], [Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts[2], Verdict::Failed("its output has no `PASS`".into()));
        assert_eq!(verdicts[3..5], [Verdict::KnownFault("because"), Verdict::Skipped("why".into())]);
        assert_eq!(verdicts[5], Verdict::Failed("it was killed after 60 s".into()));
        assert!(matches!(&verdicts[6], Verdict::Failed(text) if text.contains("no test")));
        assert!(matches!(&verdicts[7], Verdict::Failed(text) if text.contains("last words")));
    }

    #[test]
    fn cases_that_the_time_left_out_are_skipped_and_others_judged() {
        let run = CaseRun::new(GUEST, vec![Case::new("g", "ended", ""), Case::new("g", "not ended", "")]);
        let cut = run.within(Duration::from_secs(100));
        let verdicts = verdicts(&cut, "@@begin 0\n@@end 0 1 3\n@@begin 1", 30, true);
        assert_eq!(verdicts[0], Verdict::Failed("status 1".into()));
        assert_eq!(verdicts[1], Verdict::Skipped(NO_TIME.into()));
    }

    #[test]
    fn a_guest_that_hangs_fails_although_its_time_was_cut() {
        let run = || CaseRun::new(GUEST, vec![Case::new("g", "first", ""), Case::new("g", "second", "")]);
        let (cut, whole) = (run().within(Duration::from_secs(150)), run().within(Duration::from_secs(900)));
        // A case has 60 s, and booting 90 s.
        for (run, said, seconds, late, hangs) in [
            (&cut, "@@begin 0", 59, true, false),
            (&cut, "@@begin 0", 61, true, true),
            (&cut, "", 80, true, false),
            (&cut, "", 91, true, true),
            (&cut, "@@begin 0\n@@end 0 0 1", 80, true, false),
            (&cut, "@@begin 0\n@@end 0 0 1\n@@begin 1", 5, false, true),
            (&whole, "@@begin 0", 5, true, true),
            (&whole, "", 5, true, true),
        ] {
            let verdicts = verdicts(run, said, seconds, late);
            let failed = matches!(&verdicts[1], Verdict::Failed(text) if text.contains("last words"));
            assert_eq!(failed, hangs, "{said:?}, {seconds} s: {verdicts:?}");
            assert_eq!(verdicts[1] == Verdict::Skipped(NO_TIME.into()), !hangs, "{said:?}, {seconds} s");
        }
    }

    #[test]
    fn a_mark_is_noticed_in_parts_and_other_lines_are_not_marks() {
        let mut heard = Heard::new();
        let noticed = |heard: &mut Heard, bytes: &[u8]| {
            let before = heard.marked;
            std::thread::sleep(Duration::from_millis(1));
            heard.write_all(bytes).expect("memory takes it");
            heard.marked > before
        };
        assert!(!noticed(&mut heard, b"text @@begin 0\n@"));
        assert!(noticed(&mut heard, b"@be"));
        assert!(noticed(&mut heard, b"gin 1\n"));
        assert!(!noticed(&mut heard, b"text\n"));
        assert_eq!(heard.said, b"text @@begin 0\n@@begin 1\ntext\n");
    }
}
