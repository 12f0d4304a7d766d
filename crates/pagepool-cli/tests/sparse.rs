//! What packets that come one by one cost: CPU time of the process that waits for them, and how late the
//! first one after a silence comes back; and how often who waits wakes while none come. Limits follow what
//! the same machine takes at the same time for a sleep. `cargo test -p pagepool-cli --test all sparse:: --
//! --include-ignored --nocapture` prints the figures. With `PAGEPOOL=$PWD/target/dist/pagepool` it measures
//! the command that the profile `dist` built, and the limits are closer.

use crate::between;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::between::{Place, far_ends, frames, hosts, keep_to, number, send};
use pagepool_lab::FrameSocket;
use pagepool_link::{TwoHosts, TwoHostsParams};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long packets are sent at each rate.
const LONG: Duration = Duration::from_millis(300);
/// Most of a CPU that 50,000 packets a second may take where a packet that is slept for takes at most so many
/// microseconds of it; as much more as those take more. Who looks for each packet takes nine tenths.
const MOST: f64 = 0.25;
const OF_SLEEP: f64 = 15.0;
/// The first packet takes at most so many times as long as with a program that waits in poll(2) for each.
const LONGER: f64 = 1.3;
/// A debug build works for longer than it waits.
const LONGER_IN_DEBUG: f64 = 3.0;
/// A machine on which others work disturbs a measurement; hardly all of so many.
const ATTEMPTS: usize = 5;

/// The CPUs that this thread may use, which it may again when this is dropped.
struct Allowed(CpuSet);

impl Drop for Allowed {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).expect("it was allowed before");
    }
}

/// A CPU for the command; this thread keeps to another for a while.
fn cpu_for_the_command(test: &str) -> Option<(String, Allowed)> {
    let allowed = sched_getaffinity(None).expect("its own");
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let (Some(of_command), Some(ours)) = (cpus.next(), cpus.next()) else {
        println!("SKIP {test}: it needs two CPUs");
        return None;
    };
    keep_to(ours);
    Some((of_command.to_string(), Allowed(allowed)))
}

/// Nanoseconds that the threads of a process have run.
fn cpu_ns(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let ran = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
    let first = |text: String| text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    threads.filter_map(|thread| first(ran(thread.expect("a thread").path()))).sum()
}

/// How often its threads have slept.
fn sleeps(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let said = |path: std::path::PathBuf| std::fs::read_to_string(path.join("status")).unwrap_or_default();
    let count = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    threads.filter_map(|thread| count(said(thread.expect("a thread").path()))).sum()
}

/// Queues that nothing comes to, and most sleeps a second of one and its thread. Seen: 1.0.
const IDLE_QUEUES: u32 = 32;
const MOST_SLEEPS: f64 = 3.0;
/// Of the thread that watches the run: 50 looks whether it shall end.
const OF_THE_WATCH: f64 = 80.0;

#[test]
fn idle_queues_rarely_wake_and_end_at_once() {
    let name = "idle_queues_rarely_wake_and_end_at_once";
    let Some(hosts) = hosts(name, &TwoHostsParams { queues: IDLE_QUEUES, ..TwoHostsParams::default() })
    else {
        return;
    };
    let [far, _] = far_ends(&hosts);
    let Some(running) = Place::Between(&hosts).start(name, &["drop", "near0"]) else { return };
    std::thread::sleep(Duration::from_secs(1)); // threads have looked, and sleep
    let (before, start) = (sleeps(running.id()), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let slept = (sleeps(running.id()) - before) as f64 / start.elapsed().as_secs_f64();
    println!("{IDLE_QUEUES} idle queues: {slept:.0} sleeps a second");
    let mut frame = vec![0; 64];
    frames(&hosts, 0, 64).write(7, &mut frame);
    send(&far, &frame);
    running.wait_for_count(&["rx_packets"], 1);
    let start = Instant::now();
    let document = running.interrupt();
    println!("Ctrl-C to the end: {:?}", start.elapsed());
    assert_eq!(number(&document, "received"), 1, "{document}");
    let most = MOST_SLEEPS * f64::from(IDLE_QUEUES) + OF_THE_WATCH;
    assert!(slept < most, "{slept} sleeps a second, at most {most}");
}

fn wait_until(due: impl Fn() -> bool) {
    while !due() {
        std::hint::spin_loop();
    }
}

/// Sends one frame each `gap`, later ones later if one was late.
fn send_paced(hosts: &TwoHosts, far: &FrameSocket, gap: Duration) {
    let (frames, mut frame) = (frames(hosts, 0, 64), vec![0; 64]);
    let (start, mut due, mut number) = (Instant::now(), Duration::ZERO, 0);
    while due < LONG {
        wait_until(|| start.elapsed() >= due);
        frames.write(number, &mut frame);
        send(far, &frame);
        number += 1;
        due = start.elapsed().max(due + gap).min(due + 2 * gap);
    }
}

/// What packets that are so far apart have the command do.
struct Cost {
    /// Packets a second that it received.
    rate: f64,
    /// Its share of a CPU.
    share: f64,
    /// Sleeps for each packet.
    sleeps: f64,
}

/// Runs `drop`, while packets come that are so far apart.
fn cost(test: &str, hosts: &TwoHosts, arguments: &[&str], gap: Duration) -> Option<Cost> {
    let [far, _] = far_ends(hosts);
    let running = Place::Between(hosts).start(test, &[&["drop", "near0"], arguments].concat())?;
    let (ran, slept, start) = (cpu_ns(running.id()), sleeps(running.id()), Instant::now());
    send_paced(hosts, &far, gap);
    let (ran, slept) = (cpu_ns(running.id()) - ran, sleeps(running.id()) - slept);
    let took = start.elapsed();
    let received = number(&running.interrupt(), "received") as f64;
    let rate = received / took.as_secs_f64();
    let cost = Cost { rate, share: ran as f64 / took.as_nanos() as f64, sleeps: slept as f64 / received };
    println!(
        "{gap:>6?} apart: {rate:>8.0} packets/s, {:>5.1} % of a CPU, {:.2} sleeps a packet {arguments:?}",
        100.0 * cost.share,
        cost.sleeps
    );
    Some(cost)
}

#[test]
#[ignore = "measures time: .ci/timing runs it alone"]
fn packets_one_by_one_leave_most_of_the_cpu_to_others() {
    let name = "packets_one_by_one_leave_most_of_the_cpu_to_others";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some((cpu, _allowed)) = cpu_for_the_command(name) else { return };
    let cost = |gap, arguments: &[&str]| {
        cost(name, &hosts, &[&["--cpus", &cpu], arguments].concat(), Duration::from_micros(gap))
    };
    for gap in [1000, 100, 5] {
        let Some(_) = cost(gap, &[]) else { return };
    }
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let Some(each) = cost(100, &[]) else { return };
        let Some(shared) = cost(20, &["--rx-usecs", "300"]) else { return };
        // A machine that has no time to send them has none to look for them either.
        let is_as_asked = (45_000.0..55_000.0).contains(&shared.rate) && each.sleeps > 0.5;
        let of_sleep = 1e6 * each.share / (each.rate * each.sleeps);
        let most = MOST * (of_sleep / OF_SLEEP).max(1.0);
        println!("a packet that is slept for takes {of_sleep:.1} µs: at most {:.0} %", 100.0 * most);
        match is_as_asked {
            true if shared.share < most => return,
            true => seen.push((shared.share, most)),
            false => {}
        }
    }
    assert!(seen.is_empty(), "shares of a CPU, and what they may be: {seen:?}");
}

#[test]
fn packets_one_by_one_share_naps_with_rx_usecs() {
    let name = "packets_one_by_one_share_naps_with_rx_usecs";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some((cpu, _allowed)) = cpu_for_the_command(name) else { return };
    let gap = Duration::from_micros(100);
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let nap = ["--cpus", &cpu, "--rx-usecs", "300"];
        let Some(shared) = cost(name, &hosts, &nap, gap) else { return };
        let Some(each) = cost(name, &hosts, &["--cpus", &cpu], gap) else { return };
        // A busy machine sends them in bursts, and pauses.
        let is_as_asked = |cost: &Cost| (9_500.0..10_500.0).contains(&cost.rate);
        match is_as_asked(&shared) && is_as_asked(&each) && each.sleeps > 0.9 {
            true if shared.sleeps < 0.7 => return,
            true => seen.push(shared.sleeps),
            false => {}
        }
    }
    assert!(seen.is_empty(), "sleeps a packet: {seen:?}");
}

/// Has so many packets on their way at a time, each of which is sent when another came back. Says how long
/// one was on its way, on average.
fn round_trip(hosts: &TwoHosts, far: &FrameSocket, at_a_time: u32) -> Duration {
    let (frames, mut frame, mut back) = (frames(hosts, 0, 64), vec![0; 64], vec![0; 128]);
    let (start, mut came) = (Instant::now(), 0u32);
    (0..at_a_time).for_each(|number| {
        frames.write(u64::from(number), &mut frame);
        send(far, &frame);
    });
    while start.elapsed() < LONG {
        if let Ok(Some(_)) = far.receive(&mut back) {
            came += 1;
            send(far, &frame);
        }
    }
    while came == 0 {
        assert!(start.elapsed() < between::LIMIT, "none of {at_a_time} came back");
        came += u32::from(matches!(far.receive(&mut back), Ok(Some(_))));
    }
    start.elapsed() * at_a_time / came
}

#[test]
fn queued_packets_are_returned() {
    let name = "queued_packets_are_returned";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some((cpu, _allowed)) = cpu_for_the_command(name) else { return };
    for at_a_time in [1, 2, 3, 4, 8, 16] {
        for arguments in [&[][..], &["--rx-usecs", "50"]] {
            let all = [&["echo", "near0", "--cpus", &cpu], arguments].concat();
            let Some(running) = Place::Between(&hosts).start(name, &all) else { return };
            let [far, _] = far_ends(&hosts); // what comes back too late is none of the next run's
            println!("{at_a_time:>2} at a time: {:?} {arguments:?}", round_trip(&hosts, &far, at_a_time));
            running.interrupt();
        }
    }
}

/// How long a packet after a silence takes until it is back: the median of many.
fn first_packet(hosts: &TwoHosts, far: &FrameSocket, silence: Duration) -> Duration {
    let (frames, mut frame, mut back) = (frames(hosts, 0, 64), vec![0; 64], vec![0; 128]);
    let mut took: Vec<_> = (0..300)
        .map(|number| {
            let start = Instant::now();
            wait_until(|| start.elapsed() >= silence);
            frames.write(number, &mut frame);
            let start = Instant::now();
            send(far, &frame);
            let mut arrived = || matches!(far.receive(&mut back), Ok(Some(_)));
            while !arrived() {
                assert!(start.elapsed() < between::LIMIT, "number {number} after {silence:?}");
            }
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[took.len() / 2]
}

/// While `during` runs, a thread on this CPU sends back what comes to near0, and waits in poll(2) for each.
fn with_plain_echo<T>(hosts: &TwoHosts, cpu: &str, during: impl FnOnce() -> T) -> T {
    let near = hosts.run_between(|| FrameSocket::open_here("near0")).expect("a socket");
    let (cpu, ended) = (cpu.parse().expect("a number"), AtomicBool::new(false));
    let echo = || {
        keep_to(cpu);
        let mut frame = vec![0; 128];
        while !ended.load(Ordering::Relaxed) {
            near.wait(Duration::from_millis(50));
            while let Ok(Some(length)) = near.receive(&mut frame) {
                send(&near, &frame[..length]);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(echo);
        let result = during();
        ended.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
#[ignore = "measures time: .ci/timing runs it alone"]
fn the_first_packet_after_a_silence_is_about_as_soon_as_by_poll() {
    let name = "the_first_packet_after_a_silence_is_about_as_soon_as_by_poll";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some((cpu, _allowed)) = cpu_for_the_command(name) else { return };
    let is_debug = cfg!(debug_assertions) && std::env::var_os("PAGEPOOL").is_none();
    let longer = if is_debug { LONGER_IN_DEBUG } else { LONGER };
    let silences = [20, 50, 100, 1000].map(Duration::from_micros);
    let (mut late, mut is_late) = (Vec::<String>::new(), silences.map(|_| true));
    for _ in 0..ATTEMPTS {
        let [far, _] = far_ends(&hosts);
        let plain = with_plain_echo(&hosts, &cpu, || silences.map(|of| first_packet(&hosts, &far, of)));
        let arguments = ["echo", "near0", "--cpus", &cpu];
        let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
        let [far, _] = far_ends(&hosts);
        let ours = silences.map(|of| first_packet(&hosts, &far, of));
        running.interrupt();
        let rows = silences.iter().zip(plain).zip(ours);
        let rows = rows.map(|((of, plain), ours)| format!("after {of:?}: {ours:?}, poll(2) {plain:?}"));
        late.push(rows.collect::<Vec<_>>().join("; "));
        println!("{}", late[late.len() - 1]);
        (0..silences.len()).for_each(|at| is_late[at] &= ours[at] > plain[at].mul_f64(longer));
        if is_late == [false; 4] {
            return;
        }
    }
    panic!("after one of {silences:?} more than {longer} times as long each time: {late:#?}");
}
