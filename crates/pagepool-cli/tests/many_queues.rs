//! Many pairs of queues: what one takes of this process's memory and of the kernel's, and how long it takes
//! to open them all.

mod between;

use std::time::{Duration, Instant};

use between::{Place, hosts, number};
use pagepool_lab::TwoHostsParams;

/// Pairs of queues, and how many on a machine that has less memory free than `FREE_KIB`. Over one UMEM 16
/// took 37 MiB each of the kernel's.
const PAIRS: [u64; 2] = [64, 16];
const FREE_KIB: u64 = 6 << 20;
/// Most memory of a pair, in KiB.
const OF_PROCESS: u64 = 24 << 10;
const OF_KERNEL: u64 = 12 << 10;
/// The most CPU time that opening takes, in seconds of every CPU. Others that work at the same time take none
/// of it, but their share of the caches: seen 0.6 to 1.8 in a release build, and 3 in a debug build.
const CPUS_WORK_AT_MOST: f64 = if cfg!(debug_assertions) { 6.0 } else { 3.0 };
/// The longest that it takes where nobody else wants the CPUs, waiting for the kernel included.
const OPENED_WITHIN: Duration = Duration::from_secs(20);

/// A line of a file that counts KiB.
fn kib(file: &str, key: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.expect(key).trim().trim_end_matches(" kB");
    number.parse().expect("a number")
}

/// What the kernel has for itself: objects that it cannot give up, and tables.
fn of_kernel() -> u64 {
    ["SUnreclaim", "VmallocUsed"].iter().map(|key| kib("/proc/meminfo", key)).sum()
}

/// Whether as many threads want to run as there are CPUs.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").expect("Linux has it");
    let load: f64 = load.split_whitespace().next().and_then(|load| load.parse().ok()).expect("a number");
    load >= std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64)
}

/// The CPU time that a process took, in seconds for each CPU.
fn cpu_time(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux has it");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let ticks: Vec<f64> =
        fields.split(' ').skip(11).take(2).map(|field| field.parse().expect("a number")).collect();
    ticks.iter().sum::<f64>()
        / 100.0
        / std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64)
}

#[test]
fn a_pair_of_many_takes_as_much_memory_as_one_of_few() {
    let name = "a_pair_of_many_takes_as_much_memory_as_one_of_few";
    let is_small = kib("/proc/meminfo", "MemAvailable") < FREE_KIB;
    let pairs = PAIRS[usize::from(is_small)];
    let params = TwoHostsParams { queues: pairs as u32, ..TwoHostsParams::default() };
    let Some(hosts) = hosts(name, &params) else { return };
    let (before, start) = (of_kernel(), Instant::now());
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let (took, of_cpus) = (start.elapsed(), cpu_time(running.id()));
    let kernel = of_kernel().saturating_sub(before);
    let process = kib(&format!("/proc/{}/status", running.id()), "VmHWM");
    let [of_process, of_kernel] = [process, kernel].map(|all| all as f64 / pairs as f64 / 1024.0);
    println!("{pairs} pairs: {of_process:.1} and {of_kernel:.1} MiB a pair");
    println!("opened in {took:.1?}, of which the CPUs worked {of_cpus:.2} s for it");
    let document = running.interrupt();
    assert_eq!(document["ports"].as_array().map(Vec::len), Some(2 * pairs as usize), "{document}");
    assert!(process <= pairs * OF_PROCESS, "{process} KiB for {pairs} pairs");
    assert!(kernel <= pairs * OF_KERNEL, "{kernel} KiB of the kernel's for {pairs} pairs");
    assert!(of_cpus < CPUS_WORK_AT_MOST, "{of_cpus} s of CPU time, {took:?}");
    assert!(took < OPENED_WITHIN || is_busy(), "{took:?}");
    assert!(number(&document, "pages_out") > 0, "every queue had its buffers: {document}");
}
