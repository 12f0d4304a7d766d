//! `kill -9` of either side, 100 times: nothing is missing, and no file is left.

use std::fs::{read_dir, read_to_string};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use pagepool_testing::seed;

use crate::host::Host;
use crate::{LIMIT, files, place, short_rings};

const KILLS: usize = 100;
/// The socket of a front end in a process of its own, with words after it.
const SOCKET: &str = "VHOST_TEST_SOCKET";
const WORDS: &str = "VHOST_TEST_WORDS";
/// How many packets it exchanges before it says so.
const PACKETS: &str = "VHOST_TEST_PACKETS";

/// A process that dies with this value, by SIGKILL.
struct Process(Child);

impl Process {
    /// Starts it, and waits for a line with this end on its standard error.
    fn start(command: &mut Command, line_end: &str) -> Self {
        let mut process = Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let error = BufReader::new(process.0.stderr.take().unwrap());
        let mut lines = error.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with(line_end)), "it ended before {line_end}");
        process
    }

    fn back_end(arguments: &[&str]) -> Self {
        Self::start(Command::new(env!("CARGO_BIN_EXE_vhost-back-end")).args(arguments), ": ready")
    }

    /// A front end that has exchanged so many packets and goes on.
    fn front_end(socket: &Path, words: &str, packets: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "kills::a_front_end_of_its_own", "--ignored", "--nocapture"])
            .env(SOCKET, socket)
            .env(WORDS, words)
            .env(PACKETS, packets.to_string())
            .env("TMPDIR", socket.parent().unwrap())
            .env("XDG_RUNTIME_DIR", socket.parent().unwrap());
        Self::start(&mut command, "going on")
    }

    /// Whether the back end has a thread that reads the messages of a front end.
    fn reads_messages(&self) -> bool {
        let threads = read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let mut names = threads.filter_map(|thread| read_to_string(thread.path().join("comm")).ok());
        names.any(|name| name.trim_end() == "messages")
    }

    fn descriptors(&self) -> usize {
        read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait()); // it may have ended
    }
}

/// Numbers that look random, by xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
#[ignore = "a process of the tests that kill front ends"]
fn a_front_end_of_its_own() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let [words, packets] = [WORDS, PACKETS].map(|name| std::env::var(name).unwrap());
    let packets: usize = packets.parse().unwrap();
    if packets == 0 {
        eprintln!("going on");
    }
    let mut host = Host::open(Path::new(&socket), &words, &short_rings());
    host.exchange(packets);
    eprintln!("going on");
    let start = Instant::now();
    host.run_until(usize::MAX, |_| start.elapsed() > LIMIT / 2); // it is killed long before
}

/// Kills back ends: at once, while the front end sets up the queues, or after some more packets.
fn kill_back_ends(socket: &str, exchanged: &AtomicUsize) {
    let mut dice = Dice(seed("VHOST_KILL_SEED"));
    for _ in 0..KILLS {
        let (back_end, start) = (Process::back_end(&[socket, "echo"]), Instant::now());
        let goal = exchanged.load(Ordering::Relaxed) + dice.below(1000);
        match dice.below(4) {
            0 => {}
            1 => {
                while !back_end.reads_messages() {
                    assert!(start.elapsed() < LIMIT, "no front end came");
                    thread::yield_now();
                }
            }
            _ => {
                while exchanged.load(Ordering::Relaxed) < goal {
                    assert!(start.elapsed() < LIMIT, "no packets came back");
                    thread::park_timeout(LIMIT); // the host unparks
                }
            }
        }
    }
}

#[test]
fn back_ends_are_killed() {
    let (folder, socket) = place();
    let exchanged = AtomicUsize::new(0);
    let first = Process::back_end(&[socket.to_str().unwrap(), "echo"]);
    let mut host = Host::open(&socket, "", &short_rings());
    host.exchange(100);
    drop(first);
    thread::scope(|scope| {
        let killer = scope.spawn(|| kill_back_ends(socket.to_str().unwrap(), &exchanged));
        host.run_until(usize::MAX, |host| {
            exchanged.store(host.received, Ordering::Relaxed);
            killer.thread().unpark();
            killer.is_finished()
        });
    });
    assert_eq!(files(&folder), 1, "only the socket of the last one");
    let last = Process::back_end(&[socket.to_str().unwrap(), "echo"]);
    host.exchange(100);
    host.end();
    drop(last);
}

/// Kills front ends, each once it has exchanged some packets, or while it opens the device.
fn kill_front_ends(count: usize, socket: &Path, words: &str) {
    let mut dice = Dice(seed("VHOST_KILL_SEED"));
    for _ in 0..count {
        let packets = [0, 1 + dice.below(1000)][dice.below(4).min(1)];
        drop(Process::front_end(socket, words, packets));
    }
}

#[test]
fn front_ends_are_killed() {
    let (folder, socket) = place();
    let back_end = Process::back_end(&[socket.to_str().unwrap(), "echo"]);
    let before = back_end.descriptors();
    kill_front_ends(KILLS, &socket, "");
    assert_eq!(files(&folder), 1, "only the socket");
    let after = back_end.descriptors();
    assert!(after < before + KILLS / 2, "{before} descriptors before, {after} after");
    let mut host = Host::open(&socket, "", &short_rings());
    host.exchange(1000);
    host.end();
}

#[test]
fn front_ends_that_listen_are_killed() {
    let (folder, socket) = place();
    let _back_end = Process::back_end(&[socket.to_str().unwrap(), "--connect", "echo"]);
    kill_front_ends(KILLS / 5, &socket, ",server=1");
    assert_eq!(files(&folder), 1, "only the socket of the last one");
    let mut host = Host::open(&socket, ",server=1", &short_rings());
    host.exchange(1000);
    host.end();
    assert_eq!(files(&folder), 0);
}
