//! `pagepool export`: what processes publish, for Prometheus.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use pagepool::observe::{MetricsFormat, RunFolder};

use crate::engine::interrupt::listen;
use crate::file_name::file_name;
use crate::observing::look::folder;
use crate::observing::metrics_server::serve;
use crate::observing::metrics_text::metrics;
use crate::report::output;
use crate::run_command::RunCommand;

/// The time between two looks whether the user wants an end.
const NAP: Duration = Duration::from_millis(20);

/// Where the metrics go.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Serve them over HTTP, at /metrics, until Ctrl-C [ADDRESS: default 127.0.0.1:9495]
    ///
    /// Whoever reaches the address sees them: there is no password. Port 0 chooses a free one, which is
    /// printed.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9495")]
    #[arg(value_parser = address)]
    listen: Option<SocketAddr>,
    /// Write them to a file for the node exporter's textfile collector
    ///
    /// Whoever reads it sees all of them or those before: the file is exchanged by rename. Its name must end
    /// with .prom for the collector. Everybody may read it.
    #[arg(long, value_name = "PATH", conflicts_with = "listen", value_parser = file_name())]
    textfile: Option<PathBuf>,
    /// With --textfile: write it anew every SECONDS until Ctrl-C [default: write it once]
    #[arg(long, value_name = "SECONDS", requires = "textfile", value_parser = seconds)]
    every: Option<u64>,
}

impl RunCommand for ExportArgs {
    fn run(&self) -> Result<ExitCode, String> {
        let folder = folder()?;
        match (self.listen, &self.textfile) {
            (Some(address), _) => serve(address, &folder, &listen()?)?,
            (None, Some(path)) => write_often(path, &folder, self.every)?,
            (None, None) => output::whole(&metrics(&folder, MetricsFormat::OpenMetrics)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the file once, or until the user wants an end.
fn write_often(path: &Path, folder: &RunFolder, every: Option<u64>) -> Result<(), String> {
    let signals = listen()?;
    let (start, mut written) = (Instant::now(), 0);
    loop {
        let due = every.map_or(0, |every| start.elapsed().as_secs() / every) + 1;
        if due > written {
            let failed = |error| format!("cannot write {}: {error}", path.display());
            exchange(path, &metrics(folder, MetricsFormat::Prometheus)).map_err(failed)?;
            written = due;
        }
        if every.is_none() || signals.interrupted() {
            return Ok(());
        }
        std::thread::sleep(NAP);
    }
}

/// Writes a new file beside the one of this name, and gives it the name.
fn exchange(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&beside); // of an earlier process with this number, which was killed
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    let exchanged = written.and_then(|()| fs::rename(&beside, path));
    exchanged.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Reads `--listen`.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address has an IP address and a port: 127.0.0.1:9495, or [::1]:9495".into())
}

/// Reads `--every`.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| "the interval is 1 to 86400 whole seconds".into())
}
