//! What the calls cost: the benches in C of `workshop/bench`, and beside them DPDK's mempool at the same work, where it
//! is installed, and Rust's figures. Always: the benches run, and prove that each buffer took its path. Asked
//! for: the table of docs/c-api.md, of one run, by the ignored test `costs_beside_dpdk`.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{compiled, has, run, source, temporary};

/// As long as is needed to see that a bench works.
const BRIEF: [&str; 3] = ["-O2", "-DROUNDS=10", "-DACROSS_ROUNDS=5"];

/// By row: the figures of each turn, ns per buffer.
type Figures = HashMap<String, Vec<f64>>;

/// Adds what a bench printed, lines like "batch data   1.37 ns"; says how many.
fn add(figures: &mut Figures, printed: &str, of: &str) -> usize {
    let mut rows = 0;
    for line in printed.lines().filter_map(|line| line.strip_suffix(" ns")) {
        let (name, figure) = line.trim_end().rsplit_once(' ').unwrap();
        figures.entry(format!("{of}{}", name.trim())).or_default().push(figure.parse().unwrap());
        rows += 1;
    }
    rows
}

/// The programs that measure the C library: on the owner's thread, and with another one.
const CBENCH: [&str; 2] =
    ["../../workshop/bench/c/pagepool-cbench.c", "../../workshop/bench/c/pagepool-cbench-remote.c"];

fn printed(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).unwrap()
}

/// DPDK's bench; prints SKIP if there is no DPDK.
fn dpdk_bench(rounds: &[&str]) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
    let Some(flags) = flags.ok().filter(|done| done.status.success()) else {
        println!("SKIP: pkg-config finds no libdpdk (Debian: libdpdk-dev, pkg-config)");
        return None;
    };
    let flags = String::from_utf8(flags.stdout).unwrap();
    let program = temporary().join(format!("dpdk-cbench-{}", rounds.len()));
    let mut cc = Command::new("cc");
    cc.args(["-O3", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]).args(rounds);
    cc.arg(source("../../workshop/bench/c/dpdk-cbench.c")).arg("-o").arg(&program);
    run(cc.args(flags.split_whitespace()));
    Some(program)
}

/// It needs neither huge pages nor devices, and leaves nothing behind.
fn under_dpdk(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([
        "-l",
        &two_of_the_allowed(),
        "--no-huge",
        "-m",
        "256",
        "--no-pci",
        "--no-telemetry",
        "--no-shconf",
    ]);
    command.env("RUNTIME_DIRECTORY", temporary());
    command
}

/// The numbers of the first two CPUs that this process may use.
fn two_of_the_allowed() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("its CPUs");
    let numbers = list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u32>().expect("a number")..=last.parse().expect("a number")
    });
    numbers.take(2).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

fn two_processors() -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2);
    if !two {
        println!("SKIP: this machine has no second processor");
    }
    two
}

#[test]
fn the_bench_takes_the_paths_that_it_says() {
    if !has("cc") {
        return;
    }
    for how in ["static-bench", "shared-bench"] {
        for file in CBENCH {
            let text = printed(&mut Command::new(compiled(file, how, &BRIEF)));
            print!("{how}:\n{text}");
            let rows = add(&mut Figures::new(), &text, "");
            assert!(rows >= 3 || text.starts_with("SKIP"), "{rows} rows");
        }
    }
}

#[test]
fn dpdks_bench_has_a_figure_for_each_of_its_rows() {
    if !has("cc") || !two_processors() {
        return;
    }
    let Some(program) = dpdk_bench(&BRIEF[1..]) else { return };
    let text = printed(&mut under_dpdk(&program));
    print!("{text}");
    assert_eq!(add(&mut Figures::new(), &text, ""), 10, "{text}");
}

// ---- The table ----

/// A row: its target, and the figures of its columns.
struct Row {
    what: &'static str,
    target: &'static str,
    /// C by handles inline, C by handles and calls, C by batches, Rust by handles and by `Batch`, mempool, mbufs.
    columns: [&'static str; 7],
}

const ROWS: [Row; 10] = [
    Row {
        what: "singly",
        target: "2.5",
        columns: ["c inline", "c calls", "", "rust page_direct", "", "dpdk mempool", ""],
    },
    Row {
        what: "singly, with address",
        target: "3",
        columns: ["c data", "c calls data", "", "", "", "", "dpdk mbuf data"],
    },
    Row {
        what: "bulk of 32",
        target: "0.6",
        columns: [
            "c bulk",
            "c calls bulk",
            "c batch",
            "rust page_bulk32_handles",
            "rust page_bulk32",
            "dpdk mempool bulk",
            "",
        ],
    },
    Row {
        what: "bulk of 32, with addresses",
        target: "1.2",
        columns: ["c bulk data", "c calls bulk data", "c batch data", "", "", "", "dpdk mbuf bulk data"],
    },
    Row { what: "by device address, singly", target: "6", columns: ["", "c addr", "", "", "", "", ""] },
    Row {
        what: "by device address, bulk of 32",
        target: "2",
        columns: ["", "c addr bulk", "", "", "", "", ""],
    },
    Row {
        what: "returned on another core, singly",
        target: "1.3 × Rust",
        columns: ["", "c remote", "", "rust page_remote", "", "dpdk remote mempool", "dpdk remote mbuf"],
    },
    Row {
        what: "returned on another core, bulk of 32",
        target: "1.3 × Rust",
        columns: [
            "",
            "c remote bulk",
            "c remote batch",
            "rust page_remote_bulk32",
            "rust batch_remote",
            "dpdk remote mempool bulk",
            "dpdk remote mbuf bulk",
        ],
    },
    Row {
        what: "read and returned on another core, singly",
        target: "1.3 × mempool",
        columns: ["", "c remote read", "", "", "", "dpdk remote mempool read", ""],
    },
    Row {
        what: "read and returned on another core, bulk of 32",
        target: "1.3 × mempool",
        columns: ["", "c remote read bulk", "", "", "", "dpdk remote mempool read bulk", ""],
    },
];

/// The program `pagepool-bench`: of this workspace, or the one that `PAGEPOOL_BENCH` names.
fn pagepool_bench() -> Command {
    if let Some(built) = std::env::var_os("PAGEPOOL_BENCH") {
        return Command::new(built);
    }
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(source("../..")).args([
        "run",
        "--profile",
        "dist",
        "-q",
        "-p",
        "pagepool-bench",
        "--",
    ]);
    command
}

/// The least of each workload of `pagepool-bench`, from its JSON.
fn add_rust(figures: &mut Figures) {
    for filter in ["page_direct", "page_bulk32", "page_remote", "batch_remote"] {
        let json = printed(pagepool_bench().args(["--quick", "--json", "--filter", filter]));
        for result in json.split("\"name\": \"").skip(1) {
            let name = result.split_once('"').unwrap().0;
            let Some((_, after)) = result.split_once("\"ns_min\": ") else { continue };
            let Ok(least) = after.split([',', '\n']).next().unwrap().parse() else { continue };
            figures.entry(format!("rust {name}")).or_default().push(least);
        }
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Runs the benches alternately, for `ROUNDS` rounds (5): prints the medians of the rounds.
#[test]
#[ignore = "a measurement: cargo test -p pagepool-capi --test all costs:: -- --ignored --nocapture"]
fn costs_beside_dpdk() {
    if !has("cc") || !two_processors() {
        return;
    }
    let [owner, remote] = CBENCH.map(|file| compiled(file, "static-cost", &["-O2"]));
    let dpdk = dpdk_bench(&[]);
    let mut figures = Figures::new();
    for _ in 0..std::env::var("ROUNDS").map_or(5, |rounds| rounds.parse().unwrap()) {
        add(&mut figures, &printed(&mut Command::new(&owner)), "c ");
        add(&mut figures, &printed(&mut Command::new(&remote)), "c ");
        if let Some(dpdk) = &dpdk {
            add(&mut figures, &printed(&mut under_dpdk(dpdk)), "dpdk ");
        }
        add_rust(&mut figures);
    }
    println!(
        "| operation | target | inline | by calls | batch | Rust handles | Rust `Batch` | mempool | mbufs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in ROWS {
        let figure =
            |name| figures.get(name).map_or(String::new(), |rounds| format!("{:.2}", median(rounds)));
        println!("| {} | {} | {} |", row.what, row.target, row.columns.map(figure).join(" | "));
    }
    let mut others: Vec<_> = figures.iter().collect();
    others.sort_by_key(|(name, _)| name.as_str());
    others.iter().for_each(|(name, rounds)| println!("{name}: {:.2} {rounds:?}", median(rounds)));
}
