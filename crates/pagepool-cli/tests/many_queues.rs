//! Many pairs of queues: what one takes of this process's memory and of the kernel's, and that it takes no
//! longer to open than one of few.

use std::time::Instant;

use crate::between::{Place, hosts, number};
use pagepool_link::{TwoHosts, TwoHostsParams};

/// Pairs of queues, and how many on a machine that has less memory free than `FREE_KIB`. Over one UMEM 16
/// took 37 MiB each of the kernel's.
const PAIRS: [u64; 2] = [64, 16];
const FREE_KIB: u64 = 6 << 20;
/// Most memory of a pair, in KiB.
const OF_PROCESS: u64 = 24 << 10;
const OF_KERNEL: u64 = 12 << 10;
/// A pair among many may take at most this many times the CPU time of a pair among few. A step that looks at
/// all pairs for each pair would take four times as much.
const LONGER: f64 = 2.5;

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

/// The CPU time that a process took, in seconds.
fn cpu_time(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux has it");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

/// Hosts with many pairs of queues between them, and how many.
fn many(test: &str) -> Option<(TwoHosts, u64)> {
    let is_small = kib("/proc/meminfo", "MemAvailable") < FREE_KIB;
    let pairs = PAIRS[usize::from(is_small)];
    let params = TwoHostsParams { queues: pairs as u32, ..TwoHostsParams::default() };
    Some((hosts(test, &params)?, pairs))
}

#[test]
fn a_pair_of_many_takes_as_much_memory_as_one_of_few() {
    let name = "a_pair_of_many_takes_as_much_memory_as_one_of_few";
    let Some((hosts, pairs)) = many(name) else { return };
    let before = of_kernel();
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let kernel = of_kernel().saturating_sub(before);
    let process = kib(&format!("/proc/{}/status", running.id()), "VmHWM");
    let [of_process, of_kernel] = [process, kernel].map(|all| all as f64 / pairs as f64 / 1024.0);
    println!("{pairs} pairs: {of_process:.1} and {of_kernel:.1} MiB a pair");
    let document = running.interrupt();
    assert_eq!(document["ports"].as_array().map(Vec::len), Some(2 * pairs as usize), "{document}");
    assert!(process <= pairs * OF_PROCESS, "{process} KiB for {pairs} pairs");
    assert!(kernel <= pairs * OF_KERNEL, "{kernel} KiB of the kernel's for {pairs} pairs");
    assert!(number(&document, "pages_out") > 0, "every queue had its buffers: {document}");
}

#[test]
#[ignore = "measures time: .ci/timing runs it alone"]
fn a_pair_of_many_is_opened_as_fast_as_one_of_few() {
    let name = "a_pair_of_many_is_opened_as_fast_as_one_of_few";
    let Some((hosts, pairs)) = many(name) else { return };
    let opened = |queues: u64| {
        let arguments = ["forward", "near0", "near1", "--queues", &format!("0-{}", queues - 1)];
        let start = Instant::now();
        let running = Place::Between(&hosts).start(name, &arguments)?;
        let (took, each) = (start.elapsed(), cpu_time(running.id()) / queues as f64);
        running.interrupt();
        println!("{queues} pairs opened in {took:.1?}, {:.1} ms of CPU time each", 1e3 * each);
        Some(each)
    };
    // The first start finds nothing in the caches, and its memory is new to a virtual machine.
    let (Some(_), Some(few), Some(many)) = (opened(pairs), opened(pairs / 4), opened(pairs)) else {
        return;
    };
    assert!(many < LONGER * few, "{many} s for each of {pairs}, and {few} s for each of {}", pairs / 4);
}
