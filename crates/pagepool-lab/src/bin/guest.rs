//! The command `guest`: runs a program in a small Linux guest.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use pagepool_lab::guest::{Guest, GuestCard, GuestError, HostTools, Iommu, KernelImage};

const HELP: &str = include_str!("../guest/help.txt");

/// Exit statuses beside those of the program.
const SKIPPED: u8 = 77;
const LATE: u8 = 124;
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = words.split_first().map_or(("help", &[][..]), |(first, rest)| (&**first, rest));
    let done = match command {
        "run" => run(rest),
        "fetch" => fetch(rest),
        "doctor" => HostTools::find().map(|_| println!("nothing is missing")).map(|()| 0),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(0)
        }
        other => Err(GuestError::Failed(format!("no command `{other}`; guest --help tells which there are"))),
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
        let _ = writeln!(stderr, "{line}"); // without a place to say it there is still the status
    }
    Ok(if end.late { LATE } else { FAILED })
}

type Options<'a> = Vec<(&'a str, &'a str)>;

/// The options with their values, and the program with its arguments.
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
                return Err(GuestError::Failed(format!("{option} needs a value")));
            }
            [program, ..] if program != "--" => return Ok((options, rest)),
            _ => return Err(GuestError::Failed("no program; guest --help tells how".into())),
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
        "--tap" => guest.tap_queues = Some(number(name, value)?),
        "--module" => guest.modules.extend(value.split(',').map(str::to_owned)),
        "--file" => guest.files.push(file(value)?),
        "--setup" => value.clone_into(&mut guest.setup),
        "--after" => value.clone_into(&mut guest.after),
        "--out" => guest.out = Some(value.into()),
        "--append" => value.clone_into(&mut guest.append),
        "--qemu" => guest.qemu.extend(value.split_whitespace().map(str::to_owned)),
        "--timeout" => guest.timeout = Duration::from_secs(number(name, value)?.into()),
        _ => return Err(GuestError::Failed(format!("no option {name}; guest --help tells which there are"))),
    }
    Ok(())
}

fn number(name: &str, value: &str) -> Result<u32, GuestError> {
    value.parse().map_err(|_| GuestError::Failed(format!("{name} {value}: a whole number is needed")))
}

fn iommu(value: &str) -> Result<Iommu, GuestError> {
    match value {
        "none" => Ok(Iommu::None),
        "intel" => Ok(Iommu::Intel),
        "virtio" => Ok(Iommu::Virtio),
        _ => Err(GuestError::Failed(format!("--iommu {value}: there are none, intel and virtio"))),
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
