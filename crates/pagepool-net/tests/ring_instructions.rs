//! Instructions per buffer over AF_XDP without a card, counted by valgrind: the kernel's side of the rings is
//! played in memory, and is in the figures. Needs valgrind and the profile of what is installed
//! (`cargo test --profile dist -p pagepool-net --test ring_instructions -- --nocapture`).

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
use pagepool_lab::TempFolder;
use pagepool_net::{
    Action, Forwarder, Ingress, PacketHandler, PortId, Umem, UmemParams, XskKernelSide, umem_in_memory,
    xsk_in_memory,
};

/// Buffers in a poll.
const BUDGET: usize = 64;
/// Slots of each ring.
const SLOTS: u32 = 1024;
/// Set in the process whose instructions are counted: which row, and how many polls.
const COUNTED: &str = "PAGEPOOL_COUNTED_ROW";
/// Set beside it where the pools are published.
const PUBLISHED: &str = "PAGEPOOL_COUNTED_PUBLISHED";
/// Polls of the two runs, whose difference is counted.
const RUNS: [usize; 2] = [1024, 3072];

/// What packets are received into, and how long they are.
#[derive(Clone, Copy)]
struct Chunks {
    size: u32,
    /// Of the pool's pages: the commands cut 128 chunks of 2048 bytes from one.
    order: u8,
    len: u32,
    /// Buffers of a packet.
    buffers: usize,
}

const PAGES: Chunks = Chunks { size: 4096, order: 0, len: 60, buffers: 1 };
const HALVES: Chunks = Chunks { size: 2048, order: 6, ..PAGES };
const TWO: Chunks = Chunks { len: 6000, buffers: 2, ..PAGES };

/// What becomes of packets, and how many instructions a buffer may cost then.
struct Row {
    name: &'static str,
    ports: usize,
    chunks: Chunks,
    action: fn(PortId) -> Action,
    /// More fails. What was reached when the line was last changed, and a little.
    at_most: f64,
}

const ROWS: &[Row] = &[
    Row { name: "drop", ports: 1, chunks: PAGES, action: |_| Action::Drop, at_most: 193.5 },
    Row { name: "drop, chunks of 2048", ports: 1, chunks: HALVES, action: |_| Action::Drop, at_most: 212.0 },
    Row { name: "drop, two buffers", ports: 1, chunks: TWO, action: |_| Action::Drop, at_most: 305.0 },
    Row { name: "echo", ports: 1, chunks: PAGES, action: |_| Action::Tx, at_most: 311.5 },
    Row { name: "echo, chunks of 2048", ports: 1, chunks: HALVES, action: |_| Action::Tx, at_most: 350.5 },
    Row { name: "echo, two buffers", ports: 1, chunks: TWO, action: |_| Action::Tx, at_most: 448.5 },
    Row { name: "forward", ports: 2, chunks: PAGES, action: across, at_most: 332.0 },
    Row { name: "forward, chunks of 2048", ports: 2, chunks: HALVES, action: across, at_most: 371.0 },
    Row { name: "forward, two buffers", ports: 2, chunks: TWO, action: across, at_most: 473.0 },
];

fn across(port: PortId) -> Action {
    Action::Redirect(PortId(1 - port.0))
}

/// A port whose ring is full of buffers, and the kernel's side of it.
fn add_port<P: PacketHandler>(
    forwarder: &mut Forwarder<P>,
    umem: &Arc<Umem>,
    arena: &Arc<Arena>,
    chunks: Chunks,
) -> XskKernelSide {
    let params = PoolParams {
        domains: vec![umem.clone()],
        chains: if chunks.buffers > 1 { SLOTS as usize } else { 0 },
        order: chunks.order,
        headroom: 256,
        colour: false,
        ..PoolParams::default()
    };
    let (device, kernel) = xsk_in_memory(umem, SLOTS).unwrap();
    forwarder.add_port(device, Pool::new(params, arena.clone()).unwrap().bind());
    kernel
}

/// So many polls, in each of which packets arrive at the first port, and what is to be sent is.
fn run(row: &Row, polls: usize) {
    let Row { ports, chunks, action, .. } = *row;
    let params = ArenaParams { max_bytes: 64 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(params).unwrap();
    let params =
        UmemParams { chunk_size: chunks.size, multi_buffer: chunks.buffers > 1, ..Default::default() };
    let umem = umem_in_memory(params, &arena).unwrap();
    let mut forwarder = Forwarder::new(move |packet: &mut XdpBuff, at: Ingress| {
        black_box(&*packet);
        action(at.port)
    });
    let mut kernels: Vec<_> = (0..ports).map(|_| add_port(&mut forwarder, &umem, &arena, chunks)).collect();
    forwarder.poll();
    let packets = BUDGET / chunks.buffers;
    for _ in 0..polls {
        assert_eq!(kernels[0].deliver(packets, chunks.len), packets, "the ring has buffers");
        assert!(forwarder.poll() >= packets);
        kernels.iter_mut().for_each(|kernel| _ = kernel.send());
    }
}

/// The instructions of a process that runs a row, with its pools published in a folder.
fn instructions(test: &str, row: usize, polls: usize, folder: Option<&Path>) -> u64 {
    let published = folder.map(|folder| [(PUBLISHED, folder), ("PAGEPOOL_RUN", folder)]);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .envs(published.into_iter().flatten())
        .env(COUNTED, format!("{row} {polls}"))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stdout));
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    collected.expect("callgrind says how much it collected").1.trim().parse().unwrap()
}

/// Why nothing is counted here.
fn cannot_run() -> Option<&'static str> {
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        return Some("valgrind is not installed");
    }
    // Handles in bulk are copied in vector registers.
    #[cfg(target_arch = "x86_64")]
    if !is_x86_feature_detected!("avx2") {
        return Some("the CPU has no AVX2");
    }
    if option_env!("CARGO_INCREMENTAL") == Some("1") {
        return Some(
            "an incremental build, in which the compiler inlines otherwise; unset CARGO_INCREMENTAL",
        );
    }
    (!is_dist()).then_some("another build than is installed; use --profile dist")
}

/// Whether cargo built this program with the profile `dist`, into `target/dist/deps`.
fn is_dist() -> bool {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).is_some_and(|folder| folder.ends_with("dist"))
}

/// Instructions a buffer of a row.
fn each(test: &str, row: usize, folder: Option<&Path>) -> f64 {
    let [few, many] = RUNS.map(|polls| instructions(test, row, polls, folder));
    (many - few) as f64 / ((RUNS[1] - RUNS[0]) * BUDGET) as f64
}

/// Runs what a process was started for; false in the test itself.
fn is_counted() -> bool {
    let counted = std::env::var(COUNTED);
    if let Ok(counted) = &counted {
        let _publication = std::env::var_os(PUBLISHED).map(|_| pagepool::publish("rings").unwrap());
        let (row, polls) = counted.split_once(' ').unwrap();
        run(&ROWS[row.parse::<usize>().unwrap()], polls.parse().unwrap());
    }
    counted.is_ok()
}

#[test]
fn no_buffer_over_af_xdp_costs_more_instructions_than_it_may() {
    let test = "no_buffer_over_af_xdp_costs_more_instructions_than_it_may";
    if is_counted() {
        return;
    }
    ROWS.iter().for_each(|row| run(row, 64)); // the rows themselves work in every build
    if let Some(reason) = cannot_run() {
        return println!("SKIP {test}: {reason}");
    }
    let mut over = Vec::new();
    for (number, Row { name, at_most, .. }) in ROWS.iter().enumerate() {
        let each = each(test, number, None);
        println!("{name:<24} {each:>7.2} instructions a buffer, at most {at_most}");
        if each > *at_most {
            over.push(format!("{name}: {each:.2} instructions a buffer, but at most {at_most}"));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

#[test]
fn no_buffer_costs_more_where_the_pools_are_published() {
    let test = "no_buffer_costs_more_where_the_pools_are_published";
    if is_counted() {
        return;
    }
    if let Some(reason) = cannot_run() {
        return println!("SKIP {test}: {reason}");
    }
    let folder = TempFolder::new("pagepool-rings").unwrap();
    for (number, Row { name, .. }) in ROWS.iter().enumerate().step_by(3) {
        let [alone, published] = [None, Some(folder.path())].map(|folder| each(test, number, folder));
        println!("{name:<24} {alone:>7.2} instructions a buffer, published {published:.2}");
        assert!(published <= alone + 1.0, "{name}: {published:.2} published, {alone:.2} not");
    }
}
