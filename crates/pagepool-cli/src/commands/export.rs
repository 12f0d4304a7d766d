//! `pagepool export`: exports what processes publish to Prometheus.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use pagepool_watch::{MetricsFormat, RunFolder, shown_path};

use crate::command::Command;
use crate::file_name::file_name;
use crate::observing::look::folder;
use crate::observing::metrics_server::serve;
use crate::observing::metrics_text::metrics;
use crate::report::{in_range, output};
use crate::signals;

/// The longest pause before another try to write the file.
const RETRY: Duration = Duration::from_secs(10);

/// The most characters of a file's name in the name of the temporary file beside it. A character has up to
/// four bytes, a name up to 255.
const LONGEST: usize = 60;

#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Serve metrics over HTTP, at /metrics, until Ctrl-C [ADDRESS: default 127.0.0.1:9495]
    ///
    /// The format is OpenMetrics, or the text format of Prometheus for a client whose `Accept` prefers
    /// text/plain. There is no password: everyone who can reach the address can read them. Port 0 chooses a
    /// free port, which is printed.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9495")]
    #[arg(value_parser = address)]
    listen: Option<SocketAddr>,
    /// Write metrics to a file for the node exporter's textfile collector
    ///
    /// The file is replaced by rename, so a reader sees either all new or all old metrics. The collector
    /// requires a name that ends with .prom. The file is readable for everyone. If PATH is not a regular
    /// file, the command fails and leaves it unchanged.
    #[arg(long, value_name = "PATH", conflicts_with = "listen", value_parser = file_name())]
    textfile: Option<PathBuf>,
    /// With --textfile: rewrite it every SECONDS until Ctrl-C [default: write it once]
    ///
    /// If the file cannot be written, the command warns, and tries again after at most 10 s. If the first
    /// write fails, the command ends instead, unless the disk is full.
    #[arg(long, value_name = "SECONDS", requires = "textfile")]
    #[arg(value_parser = in_range(1..=86_400_u64, "the interval is 1 to 86400 whole seconds"))]
    every: Option<u64>,
}

impl Command for ExportArgs {
    fn execute(&self) -> Result<ExitCode, String> {
        let folder = folder()?;
        match (self.listen, &self.textfile) {
            (Some(address), _) => serve(address, &folder, &signals::install()?)?,
            (None, Some(path)) => write_repeatedly(path, &folder, self.every)?,
            (None, None) => output::text(&metrics(&folder, MetricsFormat::OpenMetrics)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the file once, or repeatedly until a signal ends the command. A failure may be temporary: the next
/// try can succeed.
fn write_repeatedly(path: &Path, folder: &RunFolder, every: Option<u64>) -> Result<(), String> {
    let named = shown_path(path);
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(format!("{named} is not a regular file: choose another path"));
    }
    let signals = signals::install()?;
    let interval = Duration::from_secs(every.unwrap_or(0));
    let mut file = TextFile { path, named: &named, interval, has_written: false, failure: None };
    let mut due = Instant::now();
    loop {
        due = file.write(due, &metrics(folder, MetricsFormat::Prometheus))?;
        if every.is_none() || signals.end_before(due) {
            return file.failure.map_or(Ok(()), Err);
        }
    }
}

/// The file that is written again and again.
struct TextFile<'a> {
    path: &'a Path,
    named: &'a str,
    interval: Duration,
    has_written: bool,
    /// Why it could not be written the last time.
    failure: Option<String>,
}

impl TextFile<'_> {
    /// Returns when the next try is due, or an error if none can succeed.
    fn write(&mut self, due: Instant, text: &str) -> Result<Instant, String> {
        let Self { path, named, interval, has_written, failure } = self;
        let Err(error) = replace_file(path, text) else {
            if failure.take().is_some() {
                output::note(format_args!("{named} is written again"));
            }
            *has_written = true;
            return Ok(next_due(due, *interval, Instant::now()));
        };
        let why = format!("cannot write {named}: {error}");
        if interval.is_zero() || !(*has_written || is_temporary(&error)) {
            return Err(why);
        }
        let pause = RETRY.min(*interval);
        if failure.as_ref() != Some(&why) {
            output::warn(format_args!("{why}; the next try is in {} s", pause.as_secs()));
        }
        *failure = Some(why);
        Ok(Instant::now() + pause)
    }
}

/// When the next file is due. Files that were missed, because the process was stopped or the disk is slow,
/// are skipped.
fn next_due(due: Instant, every: Duration, now: Instant) -> Instant {
    let next = due + every;
    if next > now { next } else { now + every }
}

/// Whether an error may go away: it does not come from the arguments.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a new file beside the one at `path`, and renames it to that.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_file_name(name_beside(path).ok_or(io::ErrorKind::InvalidInput)?);
    let _ = fs::remove_file(&beside); // of an earlier process with this PID, which was killed
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    let replaced = written.and_then(|()| fs::rename(&beside, path));
    replaced.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// The name of the new file: the name of the old one and the PID. Containers that share the folder may all
/// have the PID 1.
fn name_beside(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let short: String = name.chars().take(LONGEST).collect();
    Some(format!(".{short}.{}", std::process::id()))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address has an IP address and a port: 127.0.0.1:9495, or [::1]:9495".into())
}

#[cfg(test)]
mod tests {
    use pagepool_lab::TempFolder;

    use super::*;

    #[test]
    fn a_file_of_the_longest_name_is_written() {
        let name = "n".repeat(255);
        let folder = TempFolder::new("pagepool-export").unwrap();
        let path = folder.path().join(&name);
        replace_file(&path, "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_ne!(name_beside("/a.prom".as_ref()), name_beside("/b.prom".as_ref()), "two of one PID");
    }

    #[test]
    fn missed_files_are_skipped() {
        let (due, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(next_due(due, second, due + second / 2), due + second, "the beat stays");
        assert_eq!(next_due(due, second, due + 12 * second), due + 13 * second);
    }
}
