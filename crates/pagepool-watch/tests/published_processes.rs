//! Published processes that run at full load, are killed, fork, or find their file system full.
#![allow(clippy::unwrap_used)]
// UNSAFETY: fork and exit are functions of the C library.
#![expect(unsafe_code)]

mod published;

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant, SystemTime};

use pagepool::{Bound, PageBuf, Pool, PoolParams, PoolRef, Stats, publish};
use pagepool_testing::{PlainMemory, seed};
use pagepool_watch::{Life, ProcessView, RunFolder};
use published::{Folder, ROLE, in_child};

const PAGES: usize = 1024;

fn pool() -> Bound {
    Pool::new(PoolParams::default(), PlainMemory::new(PAGES, 0).unwrap()).unwrap().bind()
}

fn only(folder: &Folder) -> ProcessView {
    only_of(&folder.runs)
}

/// By a reader that saw nothing before, which would raise what fell.
fn only_seen_first(folder: &Folder) -> ProcessView {
    only_of(&RunFolder::at(folder.runs.path()))
}

fn only_of(runs: &RunFolder) -> ProcessView {
    let mut all = runs.processes();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).unwrap()
}

fn is_child() -> bool {
    env::var_os(ROLE).is_some()
}

/// A number that a variable of the environment sets higher for long runs.
fn number(variable: &str, usually: u64) -> u64 {
    env::var(variable).map_or(usually, |value| value.parse().unwrap())
}

/// Allocates and returns at full speed, here and on two other threads, until its input ends; then prints its
/// counters, and waits for the end of everything.
fn load() {
    let _publication = publish("load").unwrap();
    let (pool, stop) = (pool(), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let ways: Vec<_> = (0..2)
            .map(|_| {
                let (send, receive) = sync_channel::<Vec<PageBuf>>(2);
                threads.spawn(move || receive.into_iter().for_each(drop));
                send
            })
            .collect();
        threads.spawn(|| {
            std::io::stdin().lock().read_until(b'\n', &mut Vec::new()).unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        println!("ready");
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let page =
                |at: usize| if at.is_multiple_of(3) { pool.alloc_frag(900) } else { pool.alloc_page() };
            (0..500).for_each(|at| drop(page(at)));
            let burst: Vec<_> = (0..48).filter_map(page).collect();
            ways[round % 2].send(burst).unwrap();
        }
    });
    println!("{:?}", pool.stats());
    std::io::stdin().lock().read_to_end(&mut Vec::new()).unwrap();
}

/// Pages handed out, and pages returned.
fn pages(stats: &Stats) -> (u64, u64) {
    let out = stats.alloc_fast + stats.alloc_refill + stats.alloc_slow;
    (out, stats.recycle_cached + stats.recycle_ring + stats.recycle_ring_full)
}

#[test]
fn counters_read_at_full_load_never_fall_and_add_up() {
    if is_child() {
        return load();
    }
    let folder = Folder::new();
    let this = "counters_read_at_full_load_never_fall_and_add_up";
    let mut child =
        folder.command(this, "load").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line == "ready"));
    let (start, mut looks, mut before) = (Instant::now(), 0, Stats::default());
    let time = Duration::from_secs(number("PAGEPOOL_OBSERVE_SECONDS", 3));
    // Longer on a busy machine.
    while start.elapsed() < time || looks <= 20 || pages(&before).0 <= 100_000 {
        assert!(start.elapsed() < time + Duration::from_secs(60), "{looks} looks, {before:?}");
        let seen = if looks % 2 == 0 { only(&folder) } else { only_seen_first(&folder) };
        let (stats, inflight) = (seen.pools[0].stats, seen.pools[0].inflight);
        for ((name, now), (_, then)) in stats.fields().into_iter().zip(before.fields()) {
            assert!(now >= then, "{name} fell from {then} to {now}");
        }
        let ((out, back), (out_before, back_before)) = (pages(&stats), pages(&before));
        assert!(back_before <= out && out_before <= back + PAGES as u64, "{before:?} {stats:?}");
        assert!(inflight.total <= PAGES as i64 && inflight.out <= PAGES as u64, "{inflight:?}");
        assert!(inflight.cache <= 128 && inflight.frag <= 1 && inflight.ring <= 1024, "{inflight:?}");
        (looks, before) = (looks + 1, stats);
    }
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    let last = said.find(|line| line.starts_with("Stats")).unwrap();
    assert_eq!(format!("{:?}", only(&folder).pools[0].stats), last);
    drop(input);
    assert!(child.wait().unwrap().success());
    println!("{looks} looks at {} allocations", pages(&before).0);
}

/// What a process that may be killed notes of its buffers: how often each thing began, and was done.
struct Ledger(File);

impl Ledger {
    const ALLOC: u64 = 0;
    const DROP_HERE: u64 = 1;
    const DROP_THERE: u64 = 2;

    fn open(folder: &Folder) -> Self {
        let path = folder.runs.path().join("ledger");
        Self(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap())
    }

    /// Does something for the `count`th time.
    fn note<R>(&self, what: u64, count: u64, work: impl FnOnce() -> R) -> R {
        self.0.write_at(&count.to_ne_bytes(), what * 16).unwrap();
        let result = work();
        self.0.write_at(&count.to_ne_bytes(), what * 16 + 8).unwrap();
        result
    }

    /// How often something began, and was done.
    fn read(&self, what: u64) -> (u64, u64) {
        let number = |at| {
            let mut bytes = [0; 8];
            let read = self.0.read_at(&mut bytes, at).unwrap();
            if read == 8 { u64::from_ne_bytes(bytes) } else { 0 }
        };
        (number(what * 16), number(what * 16 + 8))
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % below
    }
}

/// The choices of a process that is to be killed.
const SEED_OF_CHILD: &str = "PAGEPOOL_TEST_SEED_OF_CHILD";

/// Takes and returns buffers, here and on another thread, until it is killed.
fn be_killed() {
    let folder = Folder::of_child();
    let _publication = publish("killed").unwrap();
    let (pool, ledger) = (pool(), Ledger::open(&folder));
    let (send, receive) = sync_channel::<PageBuf>(64);
    let there = Ledger::open(&folder);
    std::thread::spawn(move || {
        for (count, buffer) in (1..).zip(receive) {
            there.note(Ledger::DROP_THERE, count, || drop(buffer));
            (0..300).for_each(|_| std::hint::spin_loop());
        }
    });
    let (mut held, mut dice) = (Vec::new(), Dice(number(SEED_OF_CHILD, 1)));
    let (mut allocated, mut dropped) = (0, 0);
    loop {
        match dice.roll(3) {
            _ if held.len() < 20 || held.len() < 400 && dice.roll(2) == 0 => {
                allocated += 1;
                held.push(ledger.note(Ledger::ALLOC, allocated, || pool.alloc_page()).unwrap());
            }
            0 => {
                let buffer = held.swap_remove(dice.roll(held.len() as u64) as usize);
                dropped += 1;
                ledger.note(Ledger::DROP_HERE, dropped, || drop(buffer));
            }
            _ => drop(send.send(held.swap_remove(dice.roll(held.len() as u64) as usize))),
        }
        (0..dice.roll(400)).for_each(|_| std::hint::spin_loop());
    }
}

#[test]
fn the_file_of_a_killed_process_says_what_it_had() {
    if is_child() {
        return be_killed();
    }
    let folder = Folder::new();
    let this = "the_file_of_a_killed_process_says_what_it_had";
    let rounds = number("PAGEPOOL_KILLS", 40);
    let mut dice = Dice(seed("PAGEPOOL_KILL_SEED"));
    let (mut round, mut exact, mut most) = (0, 0, 0);
    // More of them until enough were at a moment that says something.
    while round < rounds || exact * 10 < rounds || most < 20 {
        assert!(round < 10 * rounds, "{exact} of {round} between two operations, {most} out");
        let _ = std::fs::remove_file(folder.runs.path().join("ledger"));
        let mut child = folder.command(this, "be killed");
        child.env(SEED_OF_CHILD, dice.roll(1 << 32).to_string()).stdout(Stdio::null());
        let mut child = child.spawn().unwrap();
        let start = Instant::now();
        let ledger = loop {
            let there = folder.runs.path().join("ledger").exists().then(|| Ledger::open(&folder));
            if let Some(ledger) = there.filter(|ledger| ledger.read(Ledger::ALLOC).1 > 0) {
                break ledger;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the child does not begin");
            std::thread::sleep(Duration::from_micros(200));
        };
        std::thread::sleep(Duration::from_micros(dice.roll(8000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // And of the rounds before that of the last.
        let mut all: Vec<_> = folder.runs.processes().into_iter().map(Result::unwrap).collect();
        assert_eq!(all.len() as u64, 1 + round.min(1), "{all:?}");
        let seen = all.remove(all.iter().position(|seen| seen.pid == child.id()).unwrap());
        let Life::Dead { last_sign } = seen.life else { panic!("{seen:?}") };
        assert!(seen.started <= last_sign && last_sign <= SystemTime::now() && seen.pid == child.id());
        let [alloc, here, there] =
            [Ledger::ALLOC, Ledger::DROP_HERE, Ledger::DROP_THERE].map(|what| ledger.read(what));
        let (least, largest) = (alloc.1 - here.0 - there.0, alloc.0 - here.1 - there.1);
        // A refill or a spill in flight has up to 64 pages in hand, which are in neither place.
        let owner_works = alloc.0 != alloc.1 || here.0 != here.1;
        let slack = if owner_works { 64 } else { 0 };
        let out = seen.pools[0].inflight.out;
        assert!(
            (least.saturating_sub(slack)..=largest + slack).contains(&out),
            "round {round}: {out} out, but {least} to {largest}: {seen:?}"
        );
        exact += u64::from(least == largest);
        most = most.max(out);
        round += 1;
    }
    println!("{round} kills, {exact} of them between two operations; up to {most} buffers out");
    assert_eq!(folder.runs.clean().unwrap().len() as u64, round.min(2));
    assert!(folder.runs.processes().is_empty());
}

/// Forks, and has the child do all that it should not; this process works until the child is done.
fn fork(work: impl FnOnce(), mut meanwhile: impl FnMut()) {
    // SAFETY: the child calls nothing that waits for a thread that it has not.
    match unsafe { libc::fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(work));
            if done.is_err() {
                // SAFETY: the child ends at once; else the test would end well, here.
                unsafe { libc::_exit(1) }
            }
            // SAFETY: the child ends as any process does: with the destructors of this thread.
            unsafe { libc::exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes one integer.
            while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
                meanwhile();
            }
            assert_eq!(status, 0, "the child ended well");
        }
    }
}

/// A pool of another thread that has ended there, with its last buffers, of which this thread drops all but
/// one.
fn ended_pool() -> PageBuf {
    let (pool, mut buffers) = std::thread::spawn(|| {
        let pool = pool();
        let buffers: Vec<_> = (0..20).filter_map(|_| pool.alloc_page()).collect();
        (pool.unbind(), buffers)
    })
    .join()
    .unwrap();
    buffers.truncate(1); // this thread has a lane of it from here on
    drop(pool.destroy());
    buffers.remove(0)
}

#[test]
fn a_child_of_fork_sees_nothing_of_what_its_parent_does_later() {
    let this = "a_child_of_fork_sees_nothing_of_what_its_parent_does_later";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let publication = publish("parent").unwrap();
    let enough = Folder::of_child().runs.path().join("enough");
    let mine = pool();
    let held: Vec<_> = (0..40).filter_map(|_| mine.alloc_page()).collect();
    let mut ended: Vec<_> = (0..6).map(|_| ended_pool()).collect();
    (0..4).for_each(|_| drop(ended_pool())); // this thread's lanes are all that is left of these
    let handle = mine.handle();
    let before = (handle.stats(), handle.inflight());
    let child = || {
        let start = Instant::now();
        while !enough.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "the parent is done");
            assert_eq!((handle.stats(), handle.inflight()), before, "what the parent did");
        }
    };
    let mut rounds = 0;
    fork(child, || {
        drop(mine.alloc_page());
        // The last counts of ended pools go with their lanes, and new pools are in their places.
        ended.pop();
        drop(ended_pool());
        rounds += 1;
        if rounds == 20 {
            File::create(&enough).unwrap();
        }
    });
    assert!(rounds >= 20 && handle.stats().alloc_fast > before.0.alloc_fast, "{rounds} rounds");
    drop((held, publication));
}

#[test]
fn a_child_of_fork_changes_nothing_of_what_its_parent_publishes() {
    let this = "a_child_of_fork_changes_nothing_of_what_its_parent_publishes";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let publication = publish("parent").unwrap();
    let mine = pool();
    let (theirs, theirs_buffers) = std::thread::spawn(|| {
        let pool = pool();
        let buffers: Vec<_> = (0..200).filter_map(|_| pool.alloc_page()).collect();
        (pool.unbind(), buffers)
    })
    .join()
    .unwrap();
    let other = theirs.handle();
    let mut far: Vec<_> = theirs_buffers;
    let mut near: Vec<_> = (0..100).filter_map(|_| mine.alloc_page()).collect();
    far.truncate(150); // this thread has a lane of the other pool from here on
    let before = only(&folder);
    let [near, far] = [&mut near, &mut far].map(std::mem::take);
    let kept = std::mem::ManuallyDrop::new((near, far));
    let child = || {
        // SAFETY: the child drops its copies, once.
        let (near, far) = unsafe { std::ptr::read(&*kept) };
        drop((near, far, mine.alloc_page()));
        drop(pool().alloc_page());
        assert!(publish("child").is_err());
        // SAFETY: the child drops its copy, once; the parent keeps its own.
        drop(unsafe { std::ptr::read(&publication) });
    };
    fork(child, || std::thread::sleep(Duration::from_millis(1)));
    assert_eq!(only(&folder), before, "what the child did");
    let (near, far) = std::mem::ManuallyDrop::into_inner(kept);
    let third = std::thread::spawn(move || far.into_iter().take(30).for_each(drop)); // a lane of its own
    third.join().unwrap();
    drop(near);
    let seen = only(&folder);
    for (seen, pool) in seen.pools.iter().zip([mine.handle(), other]) {
        assert_eq!((seen.id, seen.stats, seen.inflight), (pool.id(), pool.stats(), pool.inflight()));
    }
    assert_eq!(seen.pools[1].inflight.out, 0);
    drop((theirs, publication));
}

/// Has the next child of this thread be the first process of a pid namespace, with the number 1.
fn next_child_is_the_first_process() -> std::io::Result<()> {
    // SAFETY: children of this thread get other numbers; nothing else changes.
    match unsafe { libc::unshare(libc::CLONE_NEWPID) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn a_child_of_fork_that_has_its_parents_number_leaves_the_file() {
    let this = "a_child_of_fork_that_has_its_parents_number_leaves_the_file";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    if let Err(error) = next_child_is_the_first_process() {
        return println!("SKIP {this}: no pid namespace, which requires root: {error}");
    }
    let wait = || std::thread::sleep(Duration::from_millis(1));
    fork(
        || {
            let publication = publish("first").unwrap();
            assert_eq!(std::process::id(), 1);
            next_child_is_the_first_process().unwrap();
            let child = || {
                assert!(std::process::id() == 1 && publication.is_of_parent());
                // SAFETY: the child drops its copy, once; the parent keeps its own.
                drop(unsafe { std::ptr::read(&publication) });
            };
            fork(child, wait);
            assert!(publication.path().exists() && !publication.is_of_parent());
        },
        wait,
    );
}

/// Runs in a file system of so many bytes.
fn full() {
    let folder = Folder::of_child();
    let publication = match publish("full") {
        Ok(publication) => publication,
        Err(error) => return println!("{error}"),
    };
    let pools: Vec<Bound> = (0..100).map(|_| pool()).collect();
    let buffers: Vec<_> = pools.iter().flat_map(|pool| (0..100).filter_map(|_| pool.alloc_page())).collect();
    std::thread::spawn(|| drop(buffers)).join().unwrap();
    let seen = only(&folder);
    println!("{} shown, {} not", seen.pools.len(), seen.not_shown);
    let handles: Vec<PoolRef> = pools.iter().map(Bound::handle).collect();
    assert!(handles.iter().all(|pool| pool.stats().recycle_ring == 100 && pool.inflight().out == 0));
    for seen in seen.pools {
        let pool = handles.iter().find(|pool| pool.id() == seen.id).unwrap();
        assert_eq!((seen.stats, seen.inflight), (pool.stats(), pool.inflight()));
    }
    drop(pools);
    assert!(only(&folder).pools.is_empty());
    drop(publication);
}

#[test]
fn pools_without_room_in_the_file_system_work_and_are_counted() {
    let this = "pools_without_room_in_the_file_system_work_and_are_counted";
    if is_child() {
        return full();
    }
    let run = |size: &str| {
        let folder = Folder::new();
        std::fs::create_dir(folder.runs.path()).unwrap();
        let mount = "mount -t tmpfs -o size=$0,mode=750 none $PAGEPOOL_RUN || exit 77; exec \"$@\"";
        let this = folder.command(this, "full");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", mount, size]).arg(this.get_program()).args(this.get_args());
        command.env("PAGEPOOL_RUN", folder.runs.path()).env(ROLE, "full").output()
    };
    let text = |size| match run(size) {
        Ok(done) if done.status.success() => Some(String::from_utf8(done.stdout).unwrap()),
        Ok(done) if done.status.code() == Some(101) => {
            panic!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
        }
        _ => None,
    };
    let Some(some) = text("512k") else { return println!("SKIP: only root may mount a tmpfs") };
    let line = some.lines().find(|line| line.contains("shown")).unwrap();
    let [shown, not] = [0, 2].map(|word| line.split_whitespace().nth(word).unwrap().parse::<u32>().unwrap());
    assert!(shown > 5 && not > 5 && shown + not == 100, "{line}");
    let none = text("16k").unwrap();
    assert!(none.contains("fallocate failed: publish in a folder on tmpfs with 16 MiB free"), "{none}");
}
