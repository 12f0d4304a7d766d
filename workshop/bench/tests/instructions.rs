//! Instructions per buffer, counted by valgrind: the one figure of a bench that repeats, so the one that can
//! fail a build.
//!
//! A workload runs twice with different numbers of buffers; the difference of the instructions over the
//! difference of the buffers is what one buffer costs, loop included and everything before and after it
//! excluded. Needs valgrind and the program built as the command is installed: `cargo test --profile dist`
//! builds it, or `PAGEPOOL_BENCH` is the path of one that the profile `dist` built. Without them it prints
//! SKIP and the reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use pagepool_lab::TempFolder;

/// A workload and how many instructions per buffer of it may cost.
struct Limit {
    name: &'static str,
    /// More fails. What was reached when the line was last changed, and a little; it goes down, or the change
    /// that raises it says what the instructions bought.
    at_most: f64,
    /// What the project set itself, where that is a number of instructions. Missing it is printed.
    target: Option<f64>,
}

/// The one place for limits. On one core counts repeat exactly; where two threads wait for each other they
/// vary with what else the machine does, and the limit leaves a tenth for that. Handles in bulk are copied in
/// vector registers, so their rows require a CPU with AVX2.
const LIMITS: &[Limit] = &[
    limit("page_direct", 19.5, Some(20.0)),
    limit("page_burst64", 30.5, Some(28.0)),
    limit("page_bulk32", 3.6, Some(5.0)),
    limit("page_bulk64", 2.1, Some(5.0)),
    limit("page_bulk32_handles", 8.0, Some(8.0)),
    limit("page_bulk64_handles", 6.3, Some(8.0)),
    limit("page_fifo1024", 34.5, None),
    limit("page_fifo1024_touch", 71.5, None),
    limit("page_remote", 65.5, None),
    limit("page_remote_bulk32", 30.5, None),
    limit("page_remote_bulk32_touch", 64.0, None),
    limit("batch_remote_touch", 33.0, None),
    limit("page_ring", 62.0, None),
    limit("page_slow", 236.0, None),
    limit("frag_2090_direct", 46.5, None),
    limit("frag_2048_direct", 79.0, None),
    limit("frag_2048_lanes_left", 80.0, None), // threads left lanes: they cost nothing, but the count varies
    limit("frag_2048_lanes_idle", 118.5, None), // 64 idle ones together cost one look a page
    limit("alloc_8590_direct", 96.5, None),
    limit("arena_bulk64", 4.5, None),
    limit("arena_bulk64_refused", 24.0, None),
    limit("drop_inpoll", 393.5, None), // both halves of the NIC, with its copies
    limit("redirect_local", 1029.0, None),
    limit("frame_convert", 60.5, None),
    limit("skb_build_free", 212.5, None),
    limit("skb_clone_free", 38.5, None),
    limit("waitqueue", 242.0, None),
];

/// Over rings of which the other side is played in memory and counted, too: the kernel's of AF_XDP, the device's
/// of virtio. Those of AF_XDP require AVX2.
const RING_LIMITS: &[Limit] = &[
    limit("xsk_drop", 188.0, None),
    limit("xsk_drop_2048", 188.0, None),
    limit("xsk_drop_two", 295.0, None),
    limit("xsk_echo", 301.5, None),
    limit("xsk_echo_2048", 301.5, None),
    limit("xsk_echo_two", 438.5, None),
    limit("xsk_forward", 319.5, None),
    limit("xsk_forward_2048", 319.5, None),
    limit("xsk_forward_two", 464.0, None),
    limit("virtio_drop", 229.0, None), // over virtio queues, whose device half is played and counted, too
    limit("virtio_echo", 413.0, None),
    limit("virtio_forward", 432.0, None),
    limit("virtio_receive", 168.0, None),
    limit("virtio_send", 222.5, None),
];

const fn limit(name: &'static str, at_most: f64, target: Option<f64>) -> Limit {
    Limit { name, at_most, target }
}

/// Buffers of the two runs.
const RUNS: [u64; 2] = [32 * 1024, 96 * 1024];

#[test]
fn no_buffer_costs_more_instructions_than_it_may() {
    none_costs_more(LIMITS);
}

#[test]
fn no_buffer_over_af_xdp_costs_more_instructions_than_it_may() {
    none_costs_more(RING_LIMITS);
}

fn none_costs_more(limits: &[Limit]) {
    if let Some(reason) = cannot_run() {
        println!("SKIP: {reason}");
        return;
    }
    let mut over = Vec::new();
    for Limit { name, at_most, target } in limits {
        if (name.ends_with("_handles") || name.starts_with("xsk_")) && !has_avx2() {
            println!("SKIP: {name}: the CPU has no AVX2");
            continue;
        }
        let [few, many] = RUNS.map(|buffers| instructions(name, buffers));
        let each = (many - few) as f64 / (RUNS[1] - RUNS[0]) as f64;
        let missed = target
            .filter(|target| each > *target + 0.005)
            .map(|target| format!(", misses the target of {target}"));
        println!("{name:<24} {each:>7.2} instructions, at most {at_most}{}", missed.unwrap_or_default());
        if each > *at_most {
            over.push(format!("{name}: {each:.2} instructions per buffer, but at most {at_most}"));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

/// Workloads on one core that stand for all: allocation and return one by one and in bulk, fragments, packets
/// of a NIC and of a stack, and packets over AF_XDP.
const PUBLISHED: [&str; 9] = [
    "page_direct",
    "page_bulk32",
    "frag_2048_direct",
    "drop_inpoll",
    "redirect_local",
    "skb_build_free",
    "xsk_drop",
    "xsk_echo",
    "xsk_forward",
];

#[test]
fn a_pool_that_is_published_costs_at_most_one_instruction_more() {
    if let Some(reason) = cannot_run() {
        println!("SKIP: {reason}");
        return;
    }
    let folder = TempFolder::new("pagepool-instructions").expect("a temporary folder");
    let each = |name, folder| {
        let [few, many] = RUNS.map(|buffers| instructions_in(name, buffers, folder));
        (many - few) as f64 / (RUNS[1] - RUNS[0]) as f64
    };
    for name in PUBLISHED {
        let (alone, published) = (each(name, None), each(name, Some(folder.path())));
        println!("{name:<24} {alone:>7.2} instructions, published {published:.2}");
        assert!(
            published <= alone + 1.0,
            "{name}: {published:.2}, and {alone:.2} where nothing is published"
        );
    }
}

#[test]
fn a_count_on_one_core_repeats_to_the_instruction() {
    if let Some(reason) = cannot_run() {
        println!("SKIP: {reason}");
        return;
    }
    for name in ["page_direct", "page_bulk32", "arena_bulk64"] {
        assert_eq!(instructions(name, RUNS[0]), instructions(name, RUNS[0]), "{name}");
    }
}

fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn cannot_run() -> Option<&'static str> {
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        return Some("valgrind is not installed");
    }
    let is_dist = command().parent().is_some_and(|folder| folder.ends_with("dist"));
    (!is_dist).then_some("built with another profile; use --profile dist")
}

/// The program whose instructions are counted.
fn command() -> PathBuf {
    std::env::var_os("PAGEPOOL_BENCH").unwrap_or_else(|| env!("CARGO_BIN_EXE_pagepool-bench").into()).into()
}

fn instructions(name: &str, buffers: u64) -> u64 {
    instructions_in(name, buffers, None)
}

/// With the pools published in a folder, if one is named. Only then is it in the environment, whose texts
/// cost instructions.
fn instructions_in(name: &str, buffers: u64, folder: Option<&Path>) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(command())
        .args(["count", name, &buffers.to_string()])
        .args(folder.map(|_| "--publish"))
        .envs(folder.map(|folder| ("PAGEPOOL_RUN", folder)))
        .output()
        .expect("valgrind ran a moment ago");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {report}");
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.expect("callgrind says how much it collected");
    number.trim().parse().expect("a number")
}
