//! Two hosts in namespaces of their own, the ends of whose links the binary works on, as a user runs it.

#![allow(dead_code)] // each test binary uses a part

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagepool_lab::{FrameSocket, TempFolder, or_skip};
use pagepool_link::{Namespace, TwoHosts, TwoHostsParams};
use pagepool_net::{NumberedFrames, Tally};
use pagepool_watch::{Life, RunFolder};
use serde_json::Value;

use crate::program::NAP;
pub use crate::program::reading::{Reading, second_of};
pub use crate::program::{Ends, LIMIT, RUN_FOLDER, binary, number, signal, text, wait_until};

/// The hosts, or why there are none, which is printed.
pub fn hosts(test: &str, params: &TwoHostsParams) -> Option<TwoHosts> {
    if std::fs::metadata("/proc/self").expect("a Linux has /proc").uid() != 0 {
        println!("SKIP {test}: it needs root, for network namespaces and XDP");
        return None;
    }
    or_skip(test, TwoHosts::new(params))
}

/// Keeps this thread to a CPU.
pub fn keep_to(cpu: usize) {
    pagepool_lab::pin(cpu).expect("it is allowed");
}

/// Counters of a packet that a queue lost before it received it.
const UNRECEIVED: [&str; 6] = [
    "rx_no_buffer",
    "rx_too_long",
    "rx_too_many_buffers",
    "rx_bad_length",
    "rx_bad_descriptor",
    "rx_unmapped",
];

/// The sum of these counters over all devices and ports of a process, as it published them last in this
/// folder: a moment ago, and a second ago if nothing moves.
pub fn counted(folder: &Path, process: u32, counters: &[&str]) -> u64 {
    let all = RunFolder::at(folder).processes().into_iter().flatten();
    let ours = all.filter(|of| of.pid == process && of.life == Life::Alive);
    let counts = ours.flat_map(|of| of.entries).flat_map(|entry| entry.counters);
    counts.filter(|(name, _)| counters.contains(&&**name)).map(|(_, count)| count).sum()
}

/// Runs a command until its counters reach these values, then sends SIGINT; returns early if the command
/// cannot run here.
pub fn until_counted(mut command: Command, counters: &[(&str, u64)]) -> Output {
    let child = command.spawn().expect("the binary was built for this test");
    let mut running =
        Running { child: Some(child), said: Vec::new(), folder: RUN_FOLDER.into(), errors: None };
    for &(counter, least) in counters {
        wait_until(&format!("{counter} of {least}"), || {
            running.has_ended() || running.counted(&[counter]) >= least
        });
    }
    if !running.has_ended() {
        signal("-INT", running.id());
    }
    running.wait()
}

/// Where a command runs.
pub enum Place<'a> {
    Here,
    Between(&'a TwoHosts),
    In(&'a Namespace),
}

impl Place<'_> {
    /// Starts a command there.
    pub fn spawn(&self, mut command: Command) -> Child {
        let mut spawn = move || command.spawn().expect("the binary was built for this test");
        match self {
            Self::Here => spawn(),
            Self::Between(hosts) => hosts.run_between(spawn),
            Self::In(namespace) => namespace.run(spawn),
        }
    }

    /// Runs a command to its end, which it has to come to by itself.
    pub fn output(&self, command: Command) -> Output {
        let child = Some(self.spawn(command));
        Running { child, said: Vec::new(), folder: RUN_FOLDER.into(), errors: None }.wait()
    }

    /// What a command says that does not want to run.
    pub fn error(&self, arguments: &[&str]) -> String {
        let output = self.output(binary(arguments));
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr).to_owned()
    }

    /// Starts a command, and waits until its rings are filled: then it says what it has opened. `None` after
    /// a line that says why it does not run here.
    pub fn start(&self, test: &str, arguments: &[&str]) -> Option<Running> {
        self.start_command(test, binary(arguments))
    }

    /// The same, of a command that has an environment of its own.
    pub fn start_command(&self, test: &str, mut command: Command) -> Option<Running> {
        command.args(["--json", "--stats-every", "0"]);
        let shown = format!("{command:?}");
        let folder = command.get_envs().find(|(name, _)| *name == "PAGEPOOL_RUN").and_then(|(_, at)| at);
        let folder = folder.map_or_else(|| RUN_FOLDER.into(), PathBuf::from);
        let mut child = self.spawn(command);
        let mut errors = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut running = Running { child: Some(child), said: Vec::new(), folder, errors: None };
        loop {
            let mut line = String::new();
            let n = errors.read_line(&mut line).expect("the command prints text");
            running.said.push(line.clone());
            if line.contains(", rings of ") {
                running.errors = Some(Words::read(errors));
                return Some(running);
            }
            if n == 0 {
                let said = running.said.concat();
                let missing = ["CAP_", "Linux 6.6", "Linux 5.11", "CONFIG_XDP_SOCKETS", "MAP_HUGETLB"];
                assert!(missing.iter().any(|what| said.contains(what)), "{shown}: {said}");
                println!("SKIP {test}: {}", said.trim());
                return None;
            }
        }
    }
}

/// What a process says, read by a thread until it says no more.
struct Words {
    all: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Words {
    fn read(mut from: BufReader<ChildStderr>) -> Self {
        let all = Arc::<Mutex<String>>::default();
        let theirs = all.clone();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while from.read_line(&mut line).is_ok_and(|n| n > 0) {
                theirs.lock().expect("nobody panics there").push_str(&std::mem::take(&mut line));
            }
        });
        Self { all, reader }
    }

    fn so_far(&self) -> String {
        self.all.lock().expect("nobody panics there").clone()
    }

    fn rest(self) -> String {
        self.reader.join().expect("it reads text");
        std::mem::take(&mut self.all.lock().expect("nobody panics there"))
    }
}

/// A BPF file system in a folder of its own, in which maps have names.
pub struct BpfFolder(TempFolder);

impl BpfFolder {
    /// Mounts one, or prints why it cannot.
    pub fn new(test: &str) -> Option<Self> {
        let folder = TempFolder::new("pagepool-bpf").expect("a new folder");
        let mount = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(folder)),
            Ok(output) => {
                println!("SKIP {test}: no BPF file system: {}", text(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("SKIP {test}: no `mount`: {error}");
                None
            }
        }
    }

    /// The path of a name in it.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for BpfFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status(); // the folder stays if it fails
    }
}

/// Sets the flag when it is dropped, so that threads which look at it end also where a test panics.
pub struct Sets<'a>(pub &'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A command that runs. It ends with this value at the latest.
pub struct Running {
    child: Option<Child>,
    /// What it said on standard error before and while it opened its interfaces.
    pub said: Vec<String>,
    /// Where it publishes.
    folder: PathBuf,
    /// What it says since then.
    errors: Option<Words>,
}

impl Running {
    fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was started");
        child.try_wait().expect("it is a child").is_some()
    }

    /// The sum of these counters over its queues, as it published them last.
    pub fn counted(&self, counters: &[&str]) -> u64 {
        counted(&self.folder, self.id(), counters)
    }

    /// Packets that it lost before it received them, as it published them last.
    pub fn unreceived(&self) -> u64 {
        self.counted(&UNRECEIVED)
    }

    /// Waits until the sum of these counters is so much.
    pub fn wait_for_count(&self, counters: &[&str], least: u64) {
        wait_until(&format!("{counters:?} of {least}"), || self.counted(counters) >= least);
    }

    /// Waits until it has said this on standard error since it began.
    pub fn wait_for_words(&self, words: &str) {
        let errors = self.errors.as_ref().expect("it runs");
        wait_until(words, || errors.so_far().contains(words));
    }

    /// Asks for its figures until they have these words.
    pub fn wait_for_figures(&self, words: &str) {
        let errors = self.errors.as_ref().expect("it runs");
        wait_until(words, || {
            signal("-USR1", self.id());
            errors.so_far().contains(words)
        });
    }

    /// Ends it as Ctrl-C does, which takes a grace period of the kernel's for each socket of a thread: tenths
    /// of a second, and some more on a busy machine. Gives its JSON.
    pub fn interrupt(self) -> Value {
        self.interrupt_with_words().0
    }

    /// The same, with what it said on standard error since it began.
    pub fn interrupt_with_words(self) -> (Value, String) {
        signal("-INT", self.id());
        let (document, said) = self.end_with_words();
        assert_eq!(document["ended_by"], "interrupted");
        (document, said)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it was started").id()
    }

    /// Waits for an end that it comes to by itself. Gives its JSON.
    pub fn end(self) -> Value {
        self.end_with_words().0
    }

    /// The same, with what it said on standard error since it began.
    pub fn end_with_words(self) -> (Value, String) {
        let (output, document, said) = self.ended();
        let idle = document["failures"][0] == "No packets moved. Buffers: all returned.";
        let status = match (document["ended_by"] == "gone", document["ok"] == true) {
            (true, _)
                if document["failures"][0].as_str().is_some_and(|why| why.contains(" was removed, ")) =>
            {
                4
            }
            (_, true) => 0,
            _ if idle => 3,
            _ => 1,
        };
        assert_eq!(output.status.code(), Some(status), "{said}{document}");
        check(&document);
        (document, said)
    }

    /// The same, where the run is to end not well for these reasons, and with the status of that. Gives its
    /// JSON, and what it said on standard error since it began.
    pub fn fails(self, reasons: &[&str]) -> (Value, String) {
        let (output, document, said) = self.ended();
        assert_eq!(output.status.code(), Some(1), "{said}{document}");
        let failures = document["failures"].as_array().expect("a list");
        assert_eq!(failures.len(), reasons.len(), "{said}{document}");
        for (failure, reason) in failures.iter().zip(reasons) {
            assert!(failure.as_str().is_some_and(|text| text.contains(reason)), "{reason}: {document}");
        }
        (document, said)
    }

    /// Waits for an end of any kind. Gives its output, its JSON, and what it said on standard error.
    pub fn ended(mut self) -> (Output, Value, String) {
        let errors = self.errors.take();
        let output = self.wait();
        let more = errors.map_or_else(String::new, Words::rest);
        let shown = text(&output.stdout);
        let document: Value =
            serde_json::from_str(shown).unwrap_or_else(|_| panic!("no JSON: {shown}{more}"));
        (output, document, more)
    }

    fn wait(&mut self) -> Output {
        let mut child = self.child.take().expect("it is waited for once");
        // Read while it ends: the figures of 64 pairs are more than a pipe holds.
        let pipe = child.stdout.take(); // or it prints elsewhere
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut all)).map(|_| all)
        });
        let start = Instant::now();
        while child.try_wait().expect("it is a child").is_none() {
            if start.elapsed() > LIMIT {
                child.kill().and_then(|()| child.wait()).expect("it is a child");
                panic!("it did not end in {LIMIT:?}");
            }
            std::thread::sleep(NAP);
        }
        let stdout = reading.join().expect("it does not panic").expect("a pipe can be read");
        Output { stdout, ..child.wait_with_output().expect("it ended") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill(); // a test failed
            let _ = child.wait();
        }
    }
}

/// What the README says that there is.
const KEYS: [&str; 28] = [
    "kernel",
    "command",
    "mode",
    "interfaces",
    "seconds",
    "ended_by",
    "received",
    "sent",
    "dropped",
    "received_bytes",
    "sent_bytes",
    "pages_out",
    "pps_in",
    "pps_out",
    "mbit_s_in",
    "mbit_s_out",
    "lost",
    "lost_total",
    "unsent",
    "burst",
    "cycles",
    "slow_after_warmup",
    "missing",
    "recycled_percent",
    "buffer_locations",
    "ok",
    "pools",
    "ports",
];

/// What must hold of every run, whatever it did.
fn check(document: &Value) {
    for key in KEYS {
        assert!(document.get(key).is_some(), "{key} is missing: {document}");
    }
    assert_eq!((number(document, "missing"), number(document, "slow_after_warmup")), (0, 0), "{document}");
    for pool in document["pools"].as_array().expect("a list") {
        assert_eq!(number(pool, "hold"), number(pool, "release"), "every page is the arena's again");
    }
    let names = |key: &str| -> Vec<Value> {
        document[key].as_array().expect("a list").iter().map(|of| of["name"].clone()).collect()
    };
    assert!(names("ports").iter().all(Value::is_string), "{document}");
    assert_eq!(names("ports"), names("pools"), "in the same order: {document}");
    let locations = document["buffer_locations"].as_object().expect("an object");
    let out: u64 = locations.values().filter_map(Value::as_u64).sum();
    let ports = document["ports"].as_array().expect("a list");
    let on_rings: u64 =
        ports.iter().map(|port| number(&port["nic"], "in_rx") + number(&port["nic"], "in_tx")).sum();
    assert_eq!(out - number(&document["buffer_locations"], "tx_queue"), on_rings, "{document}");
    assert_eq!(out, number(document, "pages_out"), "locations add up to what is out: {document}");
    let failures = document["failures"].as_array().expect("a list");
    let moved = number(document, if document["command"] == "drop" { "received" } else { "sent" });
    let is_well = moved > 0 && document["ended_by"] != "gone";
    assert_eq!(document["ok"], is_well, "{document}");
    assert_eq!(
        failures.len(),
        usize::from(!is_well),
        "that no packet came, or that an interface is gone, is the only failure: {document}"
    );
    check_loss(document);
    if document["command"] == "echo" || document["command"] == "forward" {
        let never_received =
            ["rx_too_long", "rx_too_many_buffers", "rx_refused", "rx_ring_full", "rx_no_buffer"];
        let before: u64 = never_received.iter().map(|key| number(&document["lost"], key)).sum();
        let out =
            number(document, "sent") + number(document, "unsent") + number(document, "lost_total") - before;
        assert_eq!(
            number(document, "received"),
            out,
            "every packet went out or is said to be lost: {document}"
        );
    }
}

/// The share of packets that were lost has all of them.
pub fn check_loss(document: &Value) {
    let loss = &document["loss"];
    let places = loss["places"].as_object().expect("by place").values().filter_map(Value::as_u64);
    let more = ["unsent", "uncounted"].map(|key| document[key].as_u64().unwrap_or(0));
    let lost = number(document, "lost_total") + more.iter().sum::<u64>();
    assert_eq!((number(loss, "lost"), lost), (lost, places.sum()), "{document}");
    let share = lost as f64 * 100.0 / number(loss, "packets").max(1) as f64;
    assert!((loss["percent"].as_f64().expect("a share") - share).abs() < 1e-9, "{document}");
}

/// Numbered frames to a near end, of a size.
pub fn frames(hosts: &TwoHosts, to: usize, size: usize) -> NumberedFrames {
    let from = if to == 0 { &hosts.a.link } else { &hosts.b.link };
    NumberedFrames::between(from, &hosts.near[to], size).expect("a size that there is")
}

/// The far ends of both links.
pub fn far_ends(hosts: &TwoHosts) -> [FrameSocket; 2] {
    [&hosts.a, &hosts.b].map(|host| FrameSocket::of(host).expect("a socket"))
}

/// Sends a frame; where there is no room, again.
pub fn send(socket: &FrameSocket, frame: &[u8]) {
    let start = Instant::now();
    while !socket.send(frame).expect("the link is up") {
        assert!(start.elapsed() < LIMIT, "there is no room for ever");
    }
}

/// Sends the frames of these numbers, some at a time, and receives them at the other end, or the same one.
/// Says what came; numbers that do not come are sent again, for a machine that is busy may lose some.
pub fn pass(frames: &NumberedFrames, numbers: u64, from: &FrameSocket, to: &FrameSocket) -> Tally {
    let (mut tally, start) = (Tally::new(numbers), Instant::now());
    let mut frame = vec![0; frames.size()];
    let mut room = vec![0; frames.size() + 64];
    let mut next = 0;
    while tally.good < numbers {
        assert!(start.elapsed() < LIMIT, "{} of {numbers} came", tally.good);
        for number in next..(next + 16).min(numbers) {
            frames.write(number, &mut frame);
            send(from, &frame);
        }
        next += 16;
        let expected = next.min(numbers);
        while tally.good < expected && to.wait(Duration::from_secs(1)) {
            while let Some(len) = to.receive(&mut room).expect("the link is up") {
                tally.take(&room[..len.min(room.len())]);
            }
        }
        if next >= numbers && tally.good < numbers {
            println!("note: {} of {numbers} did not come, and are sent again", numbers - tally.good);
            next = 0;
        }
    }
    assert_eq!(tally.corrupt, 0, "{tally:?}");
    tally
}

/// What the kernel counts of a link of this thread's namespace, in the order of `/proc/net/dev`.
fn link_counts(name: &str) -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").expect("/proc");
    let line =
        table.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:"))).expect("the link");
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Frames that a link of this thread's namespace did not take, or dropped on arrival.
pub fn dropped_by_link(name: &str) -> u64 {
    let counts = link_counts(name);
    counts[3] + counts[11]
}

/// Frames that came to a link of this thread's namespace, also those that a program or a socket dropped then.
pub fn received_by_link(name: &str) -> u64 {
    link_counts(name)[1]
}

/// Frames from `far0` to `near0` that the links dropped so far.
pub struct LinkLosses {
    sending: u64,
    receiving: u64,
}

impl LinkLosses {
    pub fn now(hosts: &TwoHosts) -> Self {
        Self {
            sending: hosts.a.namespace.run(|| dropped_by_link("far0")),
            receiving: hosts.run_between(|| dropped_by_link("near0")),
        }
    }

    /// Frames that were lost since then: on the links, or, so many, in the socket of a command that received
    /// from `near0`. A veth counts as dropped what it could not redirect, which the socket counts, too.
    pub fn since(&self, before: &Self, in_socket: u64) -> u64 {
        self.sending - before.sending + (self.receiving - before.receiving).max(in_socket)
    }

    /// Waits until so many frames that were sent to `near0` since then have come to a command that runs
    /// there, or were dropped.
    pub fn wait_for_all(&self, hosts: &TwoHosts, running: &Running, sent: u64) {
        let came = || running.counted(&["rx_packets"]) + Self::now(hosts).since(self, running.unreceived());
        wait_until(&format!("{sent} frames have come or were dropped"), || came() >= sent);
    }
}

/// Packets that were lost before a command received them, by its own count.
pub fn unreceived(document: &Value) -> u64 {
    let lost = document["lost"].as_object().expect("by reason").iter();
    lost.filter(|(key, _)| key.starts_with("rx_")).filter_map(|(_, count)| count.as_u64()).sum()
}

pub fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The packets of a capture file of nanoseconds, whose records say that they are whole, with their times.
/// Those of one thread are in order.
pub fn capture(path: &Path) -> Vec<((u32, u32), Vec<u8>)> {
    let file = std::fs::read(path).expect("the file was written");
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(
        (word(0), word(4), word(20)),
        (0xa1b2_3c4d, 2 | 4 << 16, 1),
        "nanoseconds, version 2.4, Ethernet"
    );
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let (time, len) = ((word(at), word(at + 4)), word(at + 8) as usize);
        assert!(time.0 > 1_700_000_000 && time.1 < 1_000_000_000, "{time:?}");
        assert_eq!(word(at + 12) as usize, len, "packets are whole");
        packets.push((time, file[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    packets
}
