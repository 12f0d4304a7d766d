//! DPDK's forwarder, between two hosts: started, asked, and ended by its command line.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::io::{PipeReader, Read, Write, pipe};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pagepool_link::TwoHosts;

/// No answer takes as long.
const LIMIT: Duration = Duration::from_secs(60);

/// A forwarder that runs. Dropping it ends it.
pub struct Testpmd {
    program: Child,
    input: Option<ChildStdin>,
    printed: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    /// What was looked at, in bytes.
    seen: usize,
}

impl Testpmd {
    /// Starts it between the hosts. `command` is `stdbuf` with EAL's arguments behind it, `mbufs` what its
    /// pool shall have, `cache` what an lcore may keep of them.
    pub fn start(hosts: &TwoHosts, command: Command, mbufs: u64, cache: u32) -> Self {
        let ports = hosts.near.each_ref().map(|link| link.name.clone());
        let (output, theirs) = pipe().unwrap();
        let mut command = with_ports(&command, &ports);
        command.arg(format!("--total-num-mbufs={mbufs}")).arg(format!("--mbcache={cache}"));
        let program = hosts.run_between(move || spawn(command, theirs));
        let mut program = program.unwrap();
        let printed = Arc::new(Mutex::new(String::new()));
        let to = printed.clone();
        let reader = Some(thread::spawn(move || read_all(output, &to)));
        let input = program.stdin.take();
        let mut testpmd = Self { program, input, printed, reader, seen: 0 };
        testpmd.expect("Start automatic packet forwarding");
        testpmd.expect("testpmd>");
        testpmd
    }

    /// Gives a command, and waits for this in what it prints.
    pub fn ask(&mut self, command: &str, until: &str) {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
        self.expect(until);
    }

    /// All that it has printed.
    pub fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Waits until it prints this.
    fn expect(&mut self, what: &str) {
        let start = Instant::now();
        loop {
            let printed = self.printed();
            if let Some(at) = printed[self.seen..].find(what) {
                self.seen += at + what.len();
                return;
            }
            assert!(start.elapsed() < LIMIT, "testpmd prints no {what:?}, but:\n{printed}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as its user would; gives all that it printed. It has to end well.
    pub fn quit(mut self) -> String {
        self.ask("quit", "Bye...");
        let status = self.program.wait().unwrap(); // `timeout` bounds that
        self.reader.take().unwrap().join().unwrap();
        let printed = self.printed();
        assert!(status.success(), "testpmd: {status}:\n{printed}");
        printed
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        drop(self.input.take()); // the end of its input ends it
        let _ = self.program.wait();
    }
}

/// The command with testpmd's own arguments: it prints line by line, forwards at once, and counts cycles.
fn with_ports(command: &Command, ports: &[String; 2]) -> Command {
    let mut whole = Command::new(command.get_program());
    for arg in command.get_args() {
        whole.arg(arg);
        if arg == "stdbuf" {
            whole.args(["-oL", "dpdk-testpmd"]);
        }
    }
    for (at, port) in ports.iter().enumerate() {
        whole.arg(format!("--vdev=net_af_xdp{at},iface={port}"));
    }
    whole.args(["--", "--interactive", "--auto-start", "--forward-mode=io", "--record-core-cycles"]);
    for (name, value) in command.get_envs() {
        whole.env(name, value.unwrap_or_default());
    }
    whole.env("LIBXDP_SKIP_DISPATCHER", "1"); // nothing in the machine's BPF file system
    whole
}

fn spawn(mut command: Command, output: std::io::PipeWriter) -> std::io::Result<Child> {
    command.stdin(Stdio::piped()).stderr(output.try_clone()?).stdout(output).spawn()
}

fn read_all(mut output: PipeReader, to: &Mutex<String>) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = output.read(&mut bytes) {
        to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
}
