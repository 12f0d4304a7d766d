//! The peers as the fault injector sees them: processes in the hosts' namespaces, one after another.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pagepool_link::{Host, Mac};

use crate::counts::{CountsFile, Order, PeerCounts};
use crate::peer::{self, counter_file};

/// Lives use these frame sizes in turn.
const SIZES: [usize; 2] = [64, 1514];
/// The limit for a peer to end after the order.
const LIMIT: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(2);

pub struct PeerProcess<'a> {
    host: &'a Host,
    to: Mac,
    life: u64,
    running: PeerLife,
    /// Of earlier lives.
    before: PeerCounts,
    /// Frames of bursts in which a life was killed: sent or not.
    pub in_doubt: u64,
}

struct PeerLife {
    process: Child,
    record: CountsFile,
}

impl<'a> PeerProcess<'a> {
    /// The two peers begin with different sizes.
    pub fn start(host: &'a Host, to: &Host, first_size: usize) -> Result<Self, String> {
        let to = mac(to)?;
        let life = first_size as u64; // the life selects the size
        let running = PeerLife::start(host, to, life)?;
        Ok(Self { host, to, life, running, before: PeerCounts::default(), in_doubt: 0 })
    }

    pub fn kill(&mut self) -> Result<(), String> {
        let counts = self.running.kill()?;
        self.in_doubt += counts.begun - counts.sent;
        self.before = self.before.plus(&counts);
        self.life += 1;
        self.running = PeerLife::start(self.host, self.to, self.life)?;
        Ok(())
    }

    /// The counts of all lives.
    pub fn counts(&self) -> Result<PeerCounts, String> {
        let now = self.running.record.read().map_err(counter_file)?;
        Ok(self.before.plus(&now))
    }

    /// Fails if the process ended unexpectedly.
    pub fn must_run(&mut self) -> Result<(), String> {
        match self.status()? {
            None => Ok(()),
            Some(status) => Err(format!("the peer on {} ended unexpectedly: {status}", self.host.link.name)),
        }
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, String> {
        let status = self.running.process.try_wait();
        status.map_err(|error| format!("the peer on {}: {error}", self.host.link.name))
    }

    pub fn tell(&self, order: Order) -> Result<(), String> {
        self.running.record.tell(order).map_err(counter_file)
    }

    pub fn end(&mut self) -> Result<(), String> {
        self.tell(Order::End)?;
        let start = Instant::now();
        loop {
            match self.status()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the peer on {}: {status}", self.host.link.name)),
                None if start.elapsed() < LIMIT => std::thread::sleep(NAP),
                None => return Err(format!("the peer on {} did not end", self.host.link.name)),
            }
        }
    }
}

impl PeerLife {
    /// Starts a process from the namespace's own thread: it runs in that namespace, and ends with that
    /// thread.
    fn start(host: &Host, to: Mac, life: u64) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a peer could not be started: {error}");
        let record = CountsFile::new().map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        let number = |mac| peer::number_of(mac).to_string();
        command.arg("peer").args(["--link", &host.link.name, "--life", &life.to_string()]);
        command.args(["--size", &SIZES[(life % 2) as usize].to_string()]);
        command.args(["--from", &number(mac(host)?), "--to", &number(to)]);
        command.args(["--parent", &std::process::id().to_string()]);
        command.stdin(Stdio::from(record.file().map_err(failed)?)).stdout(Stdio::null());
        command.process_group(0); // Ctrl-C is for the fault injector
        let process = host.namespace.run(move || command.spawn()).map_err(failed)?;
        Ok(Self { process, record })
    }

    fn kill(&mut self) -> Result<PeerCounts, String> {
        let failed = |error: std::io::Error| format!("a peer could not be killed: {error}");
        self.process.kill().map_err(failed)?;
        self.process.wait().map_err(failed)?;
        self.record.read().map_err(failed)
    }
}

impl Drop for PeerLife {
    fn drop(&mut self) {
        let _ = self.process.kill(); // one that has ended is as good
        let _ = self.process.wait();
    }
}

fn mac(host: &Host) -> Result<Mac, String> {
    host.link.mac.ok_or_else(|| format!("interface {} has no address", host.link.name))
}
