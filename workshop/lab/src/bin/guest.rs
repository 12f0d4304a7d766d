//! The command `guest`: runs a program, or the list of cases, in small Linux guests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use pagepool_lab::guest::{
    CASE_GUESTS, CASES, Case, CaseGuest, CaseResult, CaseRun, CaseTable, CaseTurn, Guest, GuestCard,
    GuestError, HostTools, Iommu, KernelImage, Programs, Verdict,
};

const HELP: &str = include_str!("../guest/help.txt");

/// Exit statuses besides the program's.
const SKIPPED: u8 = 77;
const LATE: u8 = 124;
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = words.split_first().map_or(("help", &[][..]), |(first, rest)| (&**first, rest));
    let done = match command {
        "run" => run(rest),
        "fetch" => fetch(rest),
        "cases" => cases(rest),
        "doctor" => HostTools::find().map(|_| println!("nothing is missing")).map(|()| 0),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(0)
        }
        other => Err(GuestError::Failed(format!("unknown command `{other}`: see guest --help"))),
    };
    ExitCode::from(match done {
        Ok(status) => status,
        Err(GuestError::Missing(reason)) => {
            println!("SKIP guest: {reason}");
            SKIPPED
        }
        Err(error) => {
            eprintln!("guest: {error}");
            FAILED
        }
    })
}

fn fetch(kernels: &[String]) -> Result<u8, GuestError> {
    let tools = HostTools::find()?;
    for kernel in kernels {
        println!("{}", KernelImage::find(&tools, kernel)?.image().display());
    }
    Ok(0)
}

fn run(words: &[String]) -> Result<u8, GuestError> {
    let tools = HostTools::find()?;
    let (options, program) = split(words)?;
    let kernel = options.iter().rev().find(|(name, _)| *name == "--kernel").map_or("7.3", |(_, value)| value);
    let mut guest = Guest::new(tools.clone(), KernelImage::find(&tools, kernel)?);
    let mut console = None;
    for (name, value) in options {
        match name {
            "--console" => console = Some(PathBuf::from(value)),
            _ => set(&mut guest, name, value)?,
        }
    }
    let end = guest.run(program, &mut std::io::stdout(), &mut std::io::stderr())?;
    if let Some(file) = console {
        let written = std::fs::write(&file, &end.console);
        written.map_err(|error| GuestError::Failed(format!("writing {}: {error}", file.display())))?;
    }
    if let Some(status) = end.status {
        return Ok(u8::try_from(status).unwrap_or(FAILED));
    }
    let lines: Vec<&str> = end.console.lines().collect();
    let mut stderr = std::io::stderr();
    for line in &lines[lines.len().saturating_sub(40)..] {
        let _ = writeln!(stderr, "{line}"); // the status still tells
    }
    Ok(if end.late { LATE } else { FAILED })
}

type Options<'a> = Vec<(&'a str, &'a str)>;

/// Options with their values, and the program with its arguments.
fn split(words: &[String]) -> Result<(Options<'_>, &[String]), GuestError> {
    let (mut options, mut rest) = (Vec::new(), words);
    loop {
        match rest {
            [end, program @ ..] if end == "--" && !program.is_empty() => return Ok((options, program)),
            [option, value, more @ ..] if option.starts_with("--") && option != "--" => {
                options.push((&**option, &**value));
                rest = more;
            }
            [option] if option.starts_with("--") && option != "--" => {
                return Err(GuestError::Failed(format!("{option} requires a value")));
            }
            [program, ..] if program != "--" => return Ok((options, rest)),
            _ => return Err(GuestError::Failed("no program is given: see guest --help".into())),
        }
    }
}

fn set(guest: &mut Guest, name: &str, value: &str) -> Result<(), GuestError> {
    match name {
        "--kernel" => {}
        "--cpus" => guest.cpus = number(name, value)?,
        "--mem" => guest.memory_mib = number(name, value)?,
        "--nodes" => guest.nodes = number(name, value)?,
        "--iommu" => guest.iommu = iommu(value)?,
        "--nic" => guest.cards.push(GuestCard::new(value)?),
        "--module" => guest.modules.extend(value.split(',').map(str::to_owned)),
        "--file" => guest.files.push(file(value)?),
        "--setup" => value.clone_into(&mut guest.setup),
        "--after" => value.clone_into(&mut guest.after),
        "--out" => guest.out = Some(value.into()),
        "--append" => value.clone_into(&mut guest.append),
        "--qemu" => guest.qemu.extend(value.split_whitespace().map(str::to_owned)),
        "--timeout" => guest.timeout = Duration::from_secs(number(name, value)?.into()),
        _ => return Err(GuestError::Failed(format!("unknown option {name}: see guest --help"))),
    }
    Ok(())
}

fn number(name: &str, value: &str) -> Result<u32, GuestError> {
    value.parse().map_err(|_| GuestError::Failed(format!("{name} is {value}, but must be a whole number")))
}

fn iommu(value: &str) -> Result<Iommu, GuestError> {
    match value {
        "none" => Ok(Iommu::None),
        "intel" => Ok(Iommu::Intel),
        "virtio" => Ok(Iommu::Virtio),
        _ => Err(GuestError::Failed(format!("--iommu is {value}, but must be none, intel or virtio"))),
    }
}

/// `HOST:GUEST`, or a file that keeps its path.
fn file(value: &str) -> Result<(PathBuf, String), GuestError> {
    if let Some((host, guest)) = value.split_once(':') {
        return Ok((host.into(), guest.to_owned()));
    }
    let path = Path::new(value).canonicalize();
    let path = path.map_err(|error| GuestError::Failed(format!("--file {value}: {error}")))?;
    let guest = path.display().to_string();
    Ok((path, guest))
}

#[derive(Default)]
struct CaseOptions {
    only: Option<String>,
    table: Option<PathBuf>,
    within: Option<Duration>,
    begin: String,
    programs: Programs,
}

impl CaseOptions {
    fn read(words: &[String]) -> Result<Self, GuestError> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name == "--only" => options.only = Some(value.clone()),
                [name, value] if name == "--table" => options.table = Some(value.into()),
                [name, value] if name == "--within" => {
                    options.within = Some(Duration::from_secs(number(name, value)?.into()));
                }
                [name, value] if name == "--begin" => options.begin = guest_named(value)?,
                [name, value] if name == "--pagepool" => options.programs.pagepool = value.into(),
                other => {
                    let text = format!(
                        "`{}` is wrong: cases takes --only, --table, --within, --begin and --pagepool, each \
                         with a value",
                        other.join(" ")
                    );
                    return Err(GuestError::Failed(text));
                }
            }
        }
        Ok(options)
    }

    fn names(&self, case: &Case) -> bool {
        let name = format!("{}/{}", case.guest, case.name);
        self.only.as_ref().is_none_or(|only| name.contains(&**only))
    }

    fn wants(&self, case: &Case) -> bool {
        self.names(case) && !(self.within.is_some() && case.by_hand)
    }
}

fn guest_named(name: &str) -> Result<String, GuestError> {
    if CASE_GUESTS.iter().any(|guest| guest.name == name) {
        return Ok(name.to_owned());
    }
    let all: Vec<_> = CASE_GUESTS.iter().map(|guest| guest.name).collect();
    Err(GuestError::Failed(format!("--begin is {name}, but must be one of {}", all.join(", "))))
}

/// Returns 1 if a case fails without a known fault.
fn cases(words: &[String]) -> Result<u8, GuestError> {
    let mut options = CaseOptions::read(words)?;
    let begun = Instant::now();
    if !CASES.iter().any(|case| options.names(case)) {
        let only = options.only.unwrap_or_default();
        return Err(GuestError::Failed(format!("--only is `{only}`, but no GUEST/NAME contains it")));
    }
    for case in CASES.iter().filter(|case| options.names(case) && !options.wants(case)) {
        println!("SKIP {}/{}: it runs only without --within", case.guest, case.name);
    }
    if !CASES.iter().any(|case| options.wants(case)) {
        return Ok(SKIPPED);
    }
    let tools = HostTools::find()?;
    build(&mut options)?;
    let results = run_all(&options, &tools, begun)?;
    if let Some(file) = &options.table {
        write_table(file, &results)?;
    }
    let count = |of: fn(&Verdict) -> bool| results.iter().filter(|result| of(&result.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let passed = count(|verdict| *verdict == Verdict::Ok);
    let faults = count(|verdict| matches!(verdict, Verdict::KnownFault(_)));
    let ended = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {ended}. {passed} passed; {failed} failed; {faults} ignored, known faults");
    Ok(u8::from(failed > 0))
}

/// Runs the cases of each guest together. With a time limit for the whole list, runs take turns at where they
/// begin.
fn run_all(options: &CaseOptions, tools: &HostTools, begun: Instant) -> Result<Vec<CaseResult>, GuestError> {
    let turn = CaseTurn::of(tools);
    let in_turns = options.within.is_some() && options.only.is_none();
    let guests = if in_turns { turn.guests(&options.begin) } else { CASE_GUESTS.to_vec() };
    let mut results = Vec::new();
    for guest in guests {
        let of_guest = CASES.iter().filter(|case| case.guest == guest.name && options.wants(case));
        let of_guest: Vec<Case> = of_guest.copied().collect();
        if !of_guest.is_empty() {
            results.extend(run_guest(guest, of_guest, options, tools, begun));
        }
    }
    if in_turns {
        // The results count even if the turn cannot be noted.
        turn.note(&results).unwrap_or_else(|error| eprintln!("guest: warning: {error}"));
    }
    Ok(results)
}

/// Runs these cases of a guest, and prints results and times.
fn run_guest(
    guest: CaseGuest,
    cases: Vec<Case>,
    options: &CaseOptions,
    tools: &HostTools,
    begun: Instant,
) -> Vec<CaseResult> {
    let start = Instant::now();
    let mut run = CaseRun::new(guest, cases);
    if let Some(time) = options.within {
        run = run.within(time.saturating_sub(begun.elapsed()));
    }
    let results = run.run(tools, &options.programs);
    results.iter().for_each(print);
    let inside: u32 = results.iter().map(|result| result.seconds).sum();
    println!("guest {}: {} s, {inside} of them in its cases", guest.name, start.elapsed().as_secs());
    results
}

fn print(result: &CaseResult) {
    let name = format!("{}/{}", result.case.guest, result.case.name);
    let seconds = result.seconds;
    match &result.verdict {
        Verdict::Ok if result.case.known_fault.is_some() => {
            println!("test {name} ... ok ({seconds} s), although the list has a known fault");
        }
        Verdict::Ok => println!("test {name} ... {} ({seconds} s)", result.shown()),
        Verdict::Skipped(reason) => println!("SKIP {name}: {reason}"),
        Verdict::KnownFault(fault) => println!("test {name} ... known fault: {fault} ({seconds} s)"),
        Verdict::Failed(reason) => {
            println!("{}", result.output);
            println!("test {name} ... FAILED ({seconds} s)\nerror: {name}, {}: {reason}", result.kernel);
        }
    }
}

/// Builds the command and the tests with cargo.
fn build(options: &mut CaseOptions) -> Result<(), GuestError> {
    let wanted: Vec<_> = CASES.iter().filter(|case| options.wants(case)).collect();
    let has_tests = wanted.iter().any(|case| case.tests_of().is_some());
    if options.programs.pagepool.as_os_str().is_empty() {
        options.programs.pagepool = released("pagepool-cli", "pagepool")?;
    }
    if wanted.iter().any(|case| case.uses_bench()) {
        options.programs.bench = released("pagepool-bench", "pagepool-bench")?;
    }
    if has_tests {
        let programs = built(&["test", "--workspace", "--no-run", "--test", "all"])?.into_iter();
        let tests = programs.filter(|program| program.target == "all");
        options.programs.tests = tests.map(|program| (program.krate, program.path)).collect();
    }
    Ok(())
}

/// Builds a program of a package. Returns its path.
fn released(package: &str, program: &str) -> Result<PathBuf, GuestError> {
    let programs = built(&["build", "--release", "-p", package])?;
    let found = programs.into_iter().find(|built| built.target == program);
    Ok(found.map(|built| built.path).unwrap_or_default())
}

struct Built {
    krate: String,
    target: String,
    path: PathBuf,
}

/// Runs cargo. Returns the programs that it built.
fn built(words: &[&str]) -> Result<Vec<Built>, GuestError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(words).arg("--message-format=json-render-diagnostics").output();
    let output = output.map_err(|error| GuestError::Failed(format!("cargo: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(GuestError::Failed(format!("cargo {} failed:\n{said}", words.join(" "))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// The program in a line of cargo: `"manifest_path":"/.../CRATE/Cargo.toml"`, then
/// `"target":{...,"name":"TARGET"` and `"executable":"PATH"`.
fn program(line: &str) -> Option<Built> {
    let text = |line: &str, key: &str| {
        let rest = line.split(&format!("\"{key}\":\"")).nth(1)?;
        rest.split('"').next().map(str::to_owned)
    };
    let krate = text(line, "manifest_path")?.strip_suffix("/Cargo.toml")?.rsplit('/').next()?.to_owned();
    let target = text(line.split("\"target\":").nth(1)?, "name")?;
    Some(Built { krate, target, path: text(line, "executable")?.into() })
}

fn write_table(file: &Path, results: &[CaseResult]) -> Result<(), GuestError> {
    let failed = |error| GuestError::Failed(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let no_table = || GuestError::Failed(format!("{} has no table of cases", file.display()));
    let table = CaseTable::of(&text).ok_or_else(no_table)?;
    let date = Command::new("date").args(["-u", "+%F"]).output().map_err(failed)?;
    let date = String::from_utf8_lossy(&date.stdout);
    std::fs::write(file, table.with(results, date.trim())).map_err(failed)
}
