//! Installs and packages pagepool: what the programs `pagepool-install` and `pagepool-package` run.

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};

pub mod install;
pub mod package;

/// The folder of the C library, which has templates, headers and lists of symbols.
const LIBRARY_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/pagepool-capi");

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a program exits with. It prints the error.
pub fn exit_code(done: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("pagepool: {error}");
    ExitCode::FAILURE
}

/// A setting: an argument `NAME=value`, or an environment variable. An empty value is none.
fn setting(name: &str) -> Option<String> {
    let argument =
        env::args().skip(1).find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()));
    argument.or_else(|| env::var(name).ok()).filter(|value| !value.is_empty())
}

/// Refuses an argument that is no setting.
fn check_arguments(known: &[&str]) -> Result<(), String> {
    let is_known = |arg: &String| {
        known.iter().any(|name| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
    };
    match env::args().skip(1).find(|arg| !is_known(arg)) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<String> = known.iter().map(|name| format!("{name}=")).collect();
            let (last, others) = known.split_last().expect("a program has settings");
            Err(format!("{unknown}: only {} and {last} are known", others.join(", ")))
        }
    }
}

/// Runs a program that must succeed; returns its standard output.
fn output_of(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(format!("{program}: {}\n{}", done.status, text(&done.stderr)))
    }
}
