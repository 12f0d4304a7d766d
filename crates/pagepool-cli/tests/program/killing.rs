//! The tested program killed at random moments: nothing of it is left in the kernel, and the next start
//! works.
//!
//! While a run lives, the test asks the kernel what it has: the BPF objects that its descriptors name, the
//! network namespaces of its threads, and its children. Every second run is stopped first, so that this list
//! is complete; the others are killed in the middle of a call. In every fifth round each command has all its
//! links before its random life begins. After the kill the test looks for the listed objects alone: others on
//! the machine may come and go. The kernel does not use numbers of BPF objects again. It does use those of
//! namespaces again, so the test keeps namespaces open until it has looked.
//!
//! The delays follow a seed, which is printed. It is always the same one, a random one with
//! `PAGEPOOL_RANDOM_SEEDS=1`, and the given one with `PAGEPOOL_SEED`.

// UNSAFETY: a signal is sent, and the kernel is asked for BPF objects by their numbers.
#![expect(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use pagepool_link::TwoHosts;

use super::binary;

/// After so many, and at the end, a run is left alone.
const BATCH: usize = 10;
/// What the delays follow, unless another one is asked for.
const SEED: u64 = 41;
/// In which of so many rounds over all commands a life begins when the command has all its links.
const BEGUN: usize = 5;
/// The longest life, unless it takes longer to begin with.
const LIFE: Duration = Duration::from_millis(600);
/// The kernel frees objects asynchronously, and later on a busy machine.
const CLEARED: Duration = Duration::from_secs(60);
const NAP: Duration = Duration::from_millis(5);

/// What is killed.
pub struct Run {
    pub arguments: &'static [&'static str],
    /// XDP links that it has.
    pub links: usize,
    /// Whether it works on the links of a namespace of this test, which has none of its own.
    pub between: bool,
    /// Whether it starts processes.
    pub has_children: bool,
}

/// A kind of BPF object: its line in /proc/PID/fdinfo, and the command that asks for one
/// (include/uapi/linux/bpf.h).
const OBJECTS: [(&str, libc::c_int); 3] = [("prog_id:", 13), ("map_id:", 14), ("link_id:", 30)];

impl Run {
    fn start(&self, hosts: &TwoHosts) -> Child {
        let mut command = binary(self.arguments);
        command.stdout(Stdio::null());
        let mut spawn = move || command.spawn().expect("the binary was built for this test");
        if self.between { hosts.run_between(spawn) } else { spawn() }
    }

    /// The namespace that it starts in.
    fn namespace(&self, hosts: &TwoHosts) -> PathBuf {
        let here = || fs::read_link("/proc/thread-self/ns/net").expect("every Linux has it");
        if self.between { hosts.run_between(here) } else { here() }
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Duration::from_micros((mixed ^ mixed >> 27) % (limit.as_micros() as u64).max(1))
    }
}

/// What a process has that could be left behind.
#[derive(Debug, Default)]
struct Owned {
    /// BPF objects: an index of [`OBJECTS`], and the number.
    objects: BTreeSet<(usize, u32)>,
    /// Network namespaces other than this thread's, and those of the hosts.
    namespaces: Vec<(PathBuf, File)>,
    /// Processes that it started, and when each of them was.
    children: Vec<(u32, u64)>,
}

impl Owned {
    /// `ours`: the namespace that it was started in.
    fn of(pid: u32, ours: &Path) -> Self {
        let mut namespaces: Vec<(PathBuf, File)> = Vec::new();
        for task in tasks(pid) {
            let Ok(file) = File::open(task.join("ns/net")) else { continue };
            // Of what is open, so that the number stays its own.
            let of = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("it is open");
            if of != ours && namespaces.iter().all(|(other, _)| *other != of) {
                namespaces.push((of, file));
            }
        }
        let children = processes().filter_map(|child| {
            let stat = Stat::of(&PathBuf::from(format!("/proc/{child}")))?;
            (stat.parent == pid).then_some((child, stat.started))
        });
        Self { objects: objects(pid), namespaces, children: children.collect() }
    }

    fn links(&self) -> usize {
        self.objects.iter().filter(|(kind, _)| OBJECTS[*kind].0 == "link_id:").count()
    }

    /// What there still is of it.
    fn left(&self) -> Vec<String> {
        let objects = self.objects.iter().filter(|(kind, id)| exists(OBJECTS[*kind].1, *id));
        let objects = objects.map(|(kind, id)| format!("{} {id}", OBJECTS[*kind].0));
        let children = self.children.iter().filter(|(pid, started)| {
            let stat = Stat::of(&PathBuf::from(format!("/proc/{pid}")));
            stat.is_some_and(|stat| stat.started == *started && !stat.is_dead)
        });
        let children = children.map(|(pid, _)| format!("process {pid}"));
        let is_theirs = |of| self.namespaces.iter().any(|(theirs, _)| *theirs == of);
        let inside = processes().flat_map(tasks).filter(|task| namespace(task).is_some_and(is_theirs));
        let inside = inside.map(|task| format!("{} in {:?}", task.display(), namespace(&task)));
        objects.chain(children).chain(inside).collect()
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("a Linux has /proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn tasks(pid: u32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(|task| task.path())
}

fn namespace(task: &Path) -> Option<PathBuf> {
    fs::read_link(task.join("ns/net")).ok()
}

/// What descriptors of a process name.
fn objects(pid: u32) -> BTreeSet<(usize, u32)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let of_line = |line: &str| {
        let found =
            OBJECTS.iter().enumerate().find_map(|(at, (name, _))| Some((at, line.strip_prefix(name)?)));
        found.and_then(|(at, id)| Some((at, id.trim().parse().ok()?)))
    };
    texts.flat_map(|text| text.lines().filter_map(of_line).collect::<Vec<_>>()).collect()
}

/// Fields of `/proc/PID/stat` and `/proc/PID/task/TID/stat`.
struct Stat {
    is_dead: bool,
    is_stopped: bool,
    parent: u32,
    /// Ticks from boot to its start.
    started: u64,
}

impl Stat {
    fn of(task: &Path) -> Option<Self> {
        let text = fs::read_to_string(task.join("stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect(); // from the third on
        Some(Self {
            is_dead: matches!(*fields.first()?, "Z" | "X"),
            is_stopped: *fields.first()? == "T",
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Whether there is a BPF object of this number.
fn exists(command: libc::c_int, id: u32) -> bool {
    let attributes = [id, 0, 0, 0];
    let (at, size) = (&raw const attributes, size_of_val(&attributes));
    // SAFETY: the kernel reads the attributes, which outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, at, size) };
    if let Ok(fd @ 0..) = i32::try_from(fd) {
        // SAFETY: the call just made this descriptor, and nobody else has it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return true;
    }
    let error = std::io::Error::last_os_error();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "bpf({command}) of {id}: {error}");
    false
}

/// Stops a process with all its threads.
fn stop(child: &Child) {
    // SAFETY: the call takes integers; the process is a child that was not waited for, so the number is its
    // own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGSTOP) }, 0);
    let stopped = || tasks(child.id()).all(|task| Stat::of(&task).is_none_or(|stat| stat.is_stopped));
    assert!(wait_until(stopped, CLEARED), "it does not stop");
}

fn wait_until(mut done: impl FnMut() -> bool, limit: Duration) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(NAP);
    }
    true
}

/// How a run is killed.
struct Kill {
    life: Duration,
    /// Whether that begins when it has all its links.
    begun: bool,
    /// Whether it is stopped before.
    stopped: bool,
}

/// Lets it run for so long, kills it, and looks what is left; gives what it had.
fn kill_after(Kill { life, begun, stopped }: Kill, run: &Run, hosts: &TwoHosts) -> Owned {
    let (mut child, arguments, ours) = (run.start(hosts), run.arguments, run.namespace(hosts));
    if begun {
        wait_for_links(run, &child, &ours);
    }
    std::thread::sleep(life);
    if let Some(status) = child.try_wait().expect("it is a child") {
        let said = child.wait_with_output().expect("it has ended").stderr;
        panic!("{arguments:?} ended by itself: {status}: {}", String::from_utf8_lossy(&said));
    }
    if stopped {
        stop(&child);
    }
    let owned = Owned::of(child.id(), &ours);
    if stopped && owned.links() > 0 {
        let (seen, had) = (owned.left(), owned.objects.len() + owned.children.len());
        assert!(seen.len() >= had + owned.namespaces.len(), "alive it has {owned:?}, but {seen:?} is seen");
    }
    child.kill().expect("it is a child");
    child.wait().expect("it is a child");
    let cleared = wait_until(|| owned.left().is_empty(), CLEARED);
    assert!(cleared, "{arguments:?}, killed after {life:?}, left {:?}", owned.left());
    owned
}

/// How long it takes until a run has its XDP links, and so everything.
fn beginning(run: &Run, hosts: &TwoHosts) -> Duration {
    let mut child = run.start(hosts);
    let start = Instant::now();
    wait_for_links(run, &child, &run.namespace(hosts));
    let took = start.elapsed();
    child.kill().expect("it is a child");
    child.wait().expect("it is a child");
    took
}

fn wait_for_links(run: &Run, child: &Child, ours: &Path) {
    let began = wait_until(|| Owned::of(child.id(), ours).links() == run.links, CLEARED);
    assert!(began, "{:?} has no {} links after {CLEARED:?}", run.arguments, run.links);
}

/// What the delays follow.
fn seed() -> u64 {
    if let Some(seed) = std::env::var("PAGEPOOL_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return seed;
    }
    let now =
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |at| at.as_nanos() as u64);
    if std::env::var("PAGEPOOL_RANDOM_SEEDS").is_ok_and(|random| random == "1") { now() } else { SEED }
}

/// Kills these runs in turns. `PAGEPOOL_KILLS` asks for more kills than [`BEGUN`] of each run. Every now and
/// then `next` starts the next ones, which must work after so many kills.
pub fn kill_in_turns(runs: &[Run], hosts: &TwoHosts, next: impl Fn(usize)) {
    let seed = seed();
    let limits: Vec<_> = runs.iter().map(|run| LIFE.max(2 * beginning(run, hosts))).collect();
    let kills =
        std::env::var("PAGEPOOL_KILLS").map_or(runs.len() * BEGUN, |kills| kills.parse().expect("a number"));
    println!("seed {seed}, {kills} kills, lives of up to {limits:?}");
    let (mut dice, mut early, mut running, mut with_children) = (Dice(seed), 0, vec![0; runs.len()], 0);
    for number in 0..kills {
        let (which, stopped) = (number % runs.len(), (number / runs.len()).is_multiple_of(2));
        let run = &runs[which];
        let begun = (number / runs.len()) % BEGUN == BEGUN - 1;
        let owned = kill_after(Kill { life: dice.below(limits[which]), begun, stopped }, run, hosts);
        early += usize::from(owned.namespaces.is_empty() && !run.between);
        running[which] += usize::from(owned.links() == run.links);
        with_children += usize::from(!owned.children.is_empty());
        if number % BATCH == BATCH - 1 || number == kills - 1 {
            next(number + 1);
        }
    }
    println!("{early} had no namespace yet, {running:?} all links, {with_children} children");
    let has_children = runs.iter().any(|run| run.has_children);
    assert!(
        running.iter().chain(has_children.then_some(&with_children)).all(|&had| had >= kills.div_ceil(40)),
        "it was killed too early to prove anything"
    );
}
