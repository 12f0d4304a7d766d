//! Two hosts in namespaces of their own, the ends of whose links the binary works on, as a user runs it.

#![allow(dead_code)] // each test binary uses a part

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagepool_lab::{
    FrameSocket, Namespace, NumberedFrames, Tally, TempFolder, TwoHosts, TwoHostsParams, or_skip,
};
use pagepool_net::link::NetError;
use serde_json::Value;

/// Nothing here takes as long.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Where commands publish that tests run.
pub const RUN_FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/run");

/// The hosts, or why there are none, which is printed.
pub fn hosts(test: &str, params: &TwoHostsParams) -> Option<TwoHosts> {
    if std::fs::metadata("/proc/self").expect("a Linux has /proc").uid() != 0 {
        println!("SKIP {test}: it needs root, for network namespaces and XDP");
        return None;
    }
    or_skip(test, TwoHosts::new(params))
}

pub fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool"));
    command.args(arguments).env_remove("SSH_CONNECTION").env("PAGEPOOL_RUN", RUN_FOLDER);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

/// Where a command runs.
pub enum Place<'a> {
    Between(&'a TwoHosts),
    In(&'a Namespace),
}

impl Place<'_> {
    /// Starts a command there.
    pub fn spawn(&self, mut command: Command) -> Child {
        let spawn = move || command.spawn().expect("the binary was built for this test");
        match self {
            Self::Between(hosts) => hosts.run_between(spawn),
            Self::In(namespace) => namespace.run(spawn),
        }
    }

    /// Runs a command to its end, which it has to come to by itself.
    pub fn output(&self, command: Command) -> Output {
        Running { child: Some(self.spawn(command)), said: Vec::new(), errors: None }.wait()
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
        let mut child = self.spawn(command);
        let mut errors = BufReader::new(child.stderr.take().expect("it was piped"));
        let (mut said, mut running) =
            (Vec::new(), Running { child: Some(child), said: Vec::new(), errors: None });
        loop {
            let mut line = String::new();
            let n = errors.read_line(&mut line).expect("the command prints text");
            said.push(line.clone());
            if line.contains(", rings of ") {
                running.said = said;
                running.errors = Some(errors);
                return Some(running);
            }
            if n == 0 {
                let said = said.concat();
                let missing = ["CAP_", "Linux 6.6", "Linux 5.11", "CONFIG_XDP_SOCKETS", "MAP_HUGETLB"];
                assert!(missing.iter().any(|what| said.contains(what)), "{shown}: {said}");
                println!("SKIP {test}: {}", said.trim());
                return None;
            }
        }
    }
}

/// A process with the name of a command of ours that ends only when it is dropped.
pub struct Stays(Child);

impl Stays {
    pub fn new() -> Self {
        let mut stays = Command::new("sh");
        stays.args(["-c", "trap '' TERM; printf pagepool >/proc/$$/comm; echo ready; read -r end"]);
        let mut stays = stays.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut ready = String::new();
        BufReader::new(stays.stdout.take().expect("piped")).read_line(&mut ready).expect("text");
        Self(stays)
    }

    pub fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait(); // a child of ours, which reads the end of its input
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
    errors: Option<BufReader<std::process::ChildStderr>>,
}

impl Running {
    /// Ends it as Ctrl-C does, which takes a grace period of the kernel's for each socket of a thread: tenths
    /// of a second, and some more on a busy machine. Gives its JSON.
    pub fn interrupt(self) -> Value {
        self.interrupt_with_words().0
    }

    /// The same, with what it said on standard error since it began.
    pub fn interrupt_with_words(self) -> (Value, String) {
        let child = self.child.as_ref().expect("it was started");
        let start = Instant::now();
        let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(done.expect("every Linux has kill").success());
        let (document, said) = self.end_with_words();
        assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
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
            (true, _) => 4,
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

    fn ended(mut self) -> (Output, Value, String) {
        let mut errors = self.errors.take();
        let output = self.wait();
        let mut more = String::new();
        if let Some(errors) = &mut errors {
            errors.read_to_string(&mut more).expect("text");
        }
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
                child.kill().expect("it is a child");
                panic!("it did not end in {LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
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

pub fn number(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("{key} is no count: {document}"))
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
    let whole_pages = document["interfaces"][0]["chunk"] != 2048;
    assert!(
        !whole_pages || out == number(document, "pages_out"),
        "locations add up to what is out: {document}"
    );
    let failures = document["failures"].as_array().expect("a list");
    let moved = number(document, if document["command"] == "drop" { "received" } else { "sent" });
    assert_eq!(document["ok"], moved > 0, "{document}");
    assert_eq!(
        failures.len(),
        usize::from(moved == 0),
        "that no packet came is the only failure: {document}"
    );
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

/// Numbered frames to a near end, of a size.
pub fn frames(hosts: &TwoHosts, to: usize, size: usize) -> NumberedFrames {
    let from = if to == 0 { &hosts.a.link } else { &hosts.b.link };
    NumberedFrames::between(from, &hosts.near[to], size).expect("a size that there is")
}

/// The far ends of both links.
pub fn far_ends(hosts: &TwoHosts) -> [FrameSocket; 2] {
    [&hosts.a, &hosts.b].map(|host| host.frame_socket().expect("a socket"))
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

/// Frames that a link of this thread's namespace did not take, or dropped on arrival.
pub fn dropped_by_link(name: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").expect("/proc");
    let line =
        table.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:"))).expect("the link");
    let columns: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    columns[3] + columns[11]
}

pub fn ok<T>(result: Result<T, NetError>) -> T {
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
