//! Two hosts, a program between them, and a sender; reads the kernel's counts.

use std::fs;
use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pagepool_lab::{FrameGenerator, GeneratorMode, GeneratorParams};
use pagepool_link::{Namespace, TcpParams, TcpTransfer, TwoHosts, TwoHostsParams};
use pagepool_net::NumberedFrames;

use crate::option;

/// How long a program may take until packets come out of it, runs before it is measured, and may take to end.
const START: Duration = Duration::from_secs(20);
const WARM: Duration = Duration::from_millis(700);
const END: Duration = Duration::from_secs(4);
const NAP: Duration = Duration::from_millis(20);

pub fn run(words: &[&str]) -> Result<String, String> {
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (words, program) = (&words[..end], words.get(end + 1..).unwrap_or(&[]));
    let what = words.first().copied().unwrap_or("drop");
    let seconds = Duration::from_secs(option(words, "--seconds", 3)?);
    let (size, mtu) = (option(words, "--size", 64)?, option(words, "--mtu", 1500)?);
    let stack = words.contains(&"--host-cpu").then(|| option(words, "--host-cpu", 0)).transpose()?;
    let stacks = [stack.map(|cpu| cpu as u32), None];
    let mut params = TwoHostsParams { mtu: mtu as u32, stacks, ..Default::default() };
    if words.contains(&"--gather") {
        params.gather = Duration::from_micros(option(words, "--gather", 0)?);
    }
    let hosts = TwoHosts::new(&params);
    let hosts = hosts.map_err(|error| error.to_string())?;
    if hosts.a.stack != stacks[0] {
        return Err(format!("the kernel steers nothing to CPU {:?}", stacks[0]));
    }
    let program = Program::start(&hosts.between, program)?;
    let result = match what {
        "tcp" => tcp(&hosts, seconds),
        _ => frames(&hosts, what, size as usize, seconds),
    };
    let said = program.end();
    let result = result?;
    Ok(format!(r#"{{"what":"{what}","size":{size},"mtu":{mtu},{result},"said":{said}}}"#))
}

/// Frames per second that went all the way.
fn frames(hosts: &TwoHosts, what: &str, size: usize, seconds: Duration) -> Result<String, String> {
    let frames = NumberedFrames::between(&hosts.a.link, &hosts.near[0], size);
    let frames = frames.map_err(|error| error.to_string())?;
    let limit = START + WARM + seconds + END;
    let params =
        GeneratorParams { frames, count: u64::MAX, limit, per_second: None, mode: GeneratorMode::Xdp };
    let began = Instant::now();
    // Frames that the driver gets before a program takes XDP's frames are dropped there.
    let source =
        FrameGenerator::start(&hosts.a.namespace, "far0", params).map_err(|error| error.to_string())?;
    let first = arrived(hosts, what)?;
    while arrived(hosts, what)? < first + 1000 {
        if began.elapsed() > START || source.is_over() {
            let end = source.join().map_err(|error| error.to_string())?;
            return Err(format!("nothing came out of the program in {START:?}; sent {}", end.sent));
        }
        thread::sleep(NAP);
    }
    thread::sleep(WARM);
    let (start, first, sent) = (Instant::now(), arrived(hosts, what)?, source.sent());
    thread::sleep(seconds);
    let (took, last, sent) = (start.elapsed(), arrived(hosts, what)?, source.sent() - sent);
    source.stop();
    let per_second = |count: u64| count as f64 / took.as_secs_f64();
    Ok(format!(r#""pps":{:.0},"offered":{:.0}"#, per_second(last - first), per_second(sent)))
}

/// Gbit/s between the hosts' kernels.
fn tcp(hosts: &TwoHosts, seconds: Duration) -> Result<String, String> {
    let transfer = |duration, patience| {
        let params = TcpParams { duration, patience, ..TcpParams::default() };
        let (a, b) = (&hosts.a.namespace, &hosts.b.namespace);
        TcpTransfer::start(a, b, hosts.b.address, params).and_then(TcpTransfer::join)
    };
    transfer(WARM, START).map_err(|error| format!("nothing came out of the program: {error}"))?;
    let report = transfer(seconds, START).map_err(|error| error.to_string())?;
    Ok(format!(r#""gbit_s":{:.3},"whole":{}"#, report.gbit_s(), report.is_whole()))
}

/// The kernel's count of frames that the program got (drop) or sent (echo, forward).
fn arrived(hosts: &TwoHosts, what: &str) -> Result<u64, String> {
    match what {
        "drop" => hosts.run_between(given),
        "echo" => received(&hosts.a.namespace, "far0"),
        "forward" => received(&hosts.b.namespace, "far1"),
        _ => Err("use drop, echo, forward or tcp".into()),
    }
}

/// Frames that XDP redirected to sockets, dropped, or sent back itself.
fn given() -> Result<u64, String> {
    let asked = Command::new("ethtool").args(["-S", "near0"]).output();
    let asked = asked.map_err(|error| format!("the program ethtool: {error}"))?;
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let value = |line: &str, name| line.trim().strip_prefix(name)?.trim().parse::<u64>().ok();
    let names = ["rx_queue_0_xdp_redirect:", "rx_queue_0_xdp_drops:"];
    Ok(text.lines().flat_map(|line| names.iter().filter_map(move |name| value(line, name))).sum())
}

/// Packets that a link of a namespace has received.
fn received(namespace: &Namespace, link: &'static str) -> Result<u64, String> {
    let text = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let text = text.map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(link)?.strip_prefix(':'));
    let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| format!("no counters of {link}"))
}

struct Program {
    child: Option<Child>,
    output: Option<JoinHandle<String>>,
}

impl Program {
    fn start(namespace: &Namespace, words: &[&str]) -> Result<Self, String> {
        let Some((name, rest)) = words.split_first() else { return Ok(Self { child: None, output: None }) };
        let mut command = Command::new(name);
        command.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = namespace.run(move || command.spawn());
        let mut child = child.map_err(|error| format!("{name}: {error}"))?;
        let output = child.stdout.take().map(|output| thread::spawn(move || read(output)));
        Ok(Self { child: Some(child), output })
    }

    /// Ends the program. Returns its output: the last line of JSON, all of it if that is JSON, or testpmd's
    /// cycles.
    fn end(mut self) -> String {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
            if !ends_within(child, END / 4) {
                let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
                if interrupt.is_err() || !ends_within(child, END) {
                    let _ = child.kill(); // fails if it has ended
                }
            }
            let _ = child.wait();
        }
        let said = self.output.take().and_then(|output| output.join().ok()).unwrap_or_default();
        let is_json = |text: &&str| text.starts_with('{') && text.ends_with('}');
        let json = said.lines().rev().find(is_json).or(Some(said.trim()).filter(is_json));
        let cycles = said.lines().find_map(|line| line.trim().strip_prefix("CPU cycles/packet="));
        let cycles = cycles.and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
        match (json, cycles) {
            (Some(json), _) => json.replace('\n', " "),
            (None, Some(cycles)) => format!(r#"{{"all":{cycles}}}"#),
            _ => "null".into(),
        }
    }
}

fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        let ended = child.try_wait().is_ok_and(|ended| ended.is_some());
        if ended || start.elapsed() > limit {
            return ended;
        }
        thread::sleep(NAP);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read(mut output: ChildStdout) -> String {
    let mut bytes = Vec::new();
    let _ = output.read_to_end(&mut bytes); // an error keeps what was read before
    String::from_utf8_lossy(&bytes).into_owned()
}
