//! DPDK's default mempool and packet buffers: compiles the C program beside this file, and runs it as a process that waits for
//! orders.
//!
//! This command does not link DPDK. Without DPDK the report says what is missing, and lacks those columns.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, id};

use crate::measure::workload::Plan;

const SOURCE: &str = include_str!("dpdk.c");
/// Huge pages of 2 MiB for its objects and DPDK itself.
const HUGE_PAGES: usize = 48;
/// The most repetitions that it records.
const MOST_REPEATS: usize = 64;

/// Dropping it removes its folder.
#[derive(Debug)]
pub struct DpdkProgram {
    folder: PathBuf,
    /// DPDK's.
    pub version: String,
}

impl DpdkProgram {
    /// The error names what is missing.
    pub fn compile() -> Result<Self, String> {
        let missing = |why| format!("{why}; on Debian, install libdpdk-dev, pkg-config and gcc");
        let config = |what| run(Command::new("pkg-config").args([what, "libdpdk"])).map_err(missing);
        let version = config("--modversion")?;
        let folder = std::env::temp_dir().join(format!("pagepool-across-{}", id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let program = Self { folder, version };
        let source = program.folder.join("dpdk.c");
        fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut cc = Command::new("cc");
        cc.args(["-O3", "-march=native"]).args(config("--cflags")?.split_whitespace());
        cc.arg(source).arg("-o").arg(program.path());
        run(cc.args(config("--libs")?.split_whitespace())).map_err(missing)?;
        Ok(program)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("dpdk")
    }

    /// Starts it on two CPUs, and waits until it is ready.
    pub fn start(&self, cpus: [usize; 2]) -> Result<Dpdk, String> {
        let [first, second] = cpus;
        let mut command = Command::new(self.path());
        command.args(["-l", &format!("{first},{second}"), "--main-lcore", &first.to_string()]);
        command.args(["--no-pci", "--no-telemetry", "--log-level=error"]);
        if huge_pages_free() >= HUGE_PAGES {
            command.arg("--in-memory");
        } else {
            command.args(["--no-huge", "--no-shconf", "-m", "96"]);
        }
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| format!("{}: {error}", self.path().display()))?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take().map(BufReader::new));
        let mut dpdk = Dpdk { process, stdin, stdout };
        dpdk.measure(Kind::Mempool, false, 1, Plan { repeats: 1, buffers: 1024 })?;
        Ok(dpdk)
    }
}

impl Drop for DpdkProgram {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder); // a leftover does no harm
    }
}

/// Whether DPDK and the report's fragments get reserved huge pages.
pub fn huge_pages_reserved() -> bool {
    huge_pages_free() >= HUGE_PAGES
}

fn huge_pages_free() -> usize {
    let read = fs::read_to_string(Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"));
    read.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Returns the output, or why it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} failed: {}", said.lines().next().unwrap_or_default()))
}

/// DPDK's kinds of buffers.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Mempool,
    /// `struct rte_mbuf`, what packets are in.
    Pktmbuf,
}

/// It exits when this is dropped.
#[derive(Debug)]
pub struct Dpdk {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Dpdk {
    /// Measures with `bulk` objects per call. Returns nanoseconds per buffer for each repetition.
    pub fn measure(&mut self, kind: Kind, touch: bool, bulk: usize, plan: Plan) -> Result<Vec<f64>, String> {
        let failed = |error| format!("DPDK's program stopped: {error}");
        let (stdin, stdout) =
            self.stdin.as_mut().zip(self.stdout.as_mut()).ok_or("DPDK's program stopped")?;
        let repeats = plan.repeats.min(MOST_REPEATS);
        let (kind, touch) = (kind as u8, u8::from(touch));
        writeln!(stdin, "{kind} {bulk} {touch} {repeats} {}", plan.buffers).map_err(failed)?;
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(failed)?;
        let ns: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        if ns.len() == repeats { Ok(ns) } else { Err("DPDK's program stopped; its reason is above".into()) }
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        drop(self.stdin.take()); // no more orders: it exits
        _ = self.process.wait();
    }
}
