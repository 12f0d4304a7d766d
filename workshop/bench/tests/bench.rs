//! The program as a user runs it.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn bench(arguments: &[&str]) -> Output {
    let _shared = pagepool_lab::share_huge_pages();
    let command = Command::new(env!("CARGO_BIN_EXE_pagepool-bench")).args(arguments).output();
    command.expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

#[test]
fn json_has_the_keys_and_the_counters_of_page_direct() {
    let output = bench(&["--quick", "--filter", "page_direct", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let results = document["results"].as_array().expect("an array");
    assert_eq!(results.len(), 1);
    let result = &results[0];
    assert_eq!(result["name"], "page_direct");
    assert_eq!(result["linux_name"], "no-softirq-page_pool01");
    for key in ["ns_min", "ns_med", "ns_max", "tsc_med"] {
        assert!(result[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {result}");
    }
    for key in ["core_cycles_med", "instructions"] {
        assert_eq!(
            result[key].is_null(),
            document["machine"]["hardware_counters"] == false,
            "{key}: {result}"
        );
    }
    let buffers = result["buffers"].as_u64().expect("a number");
    assert!(buffers >= 9 * 1024);
    assert_eq!(result["counters"]["alloc_fast"], buffers);
    assert_eq!(result["counters"]["recycle_cached"], buffers);
    assert_eq!(result["counters"]["alloc_slow"], 0);
    assert!(result["failed"].is_null());
}

#[test]
fn the_bench_publishes_its_pools_only_if_requested() {
    let relative = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool-bench"));
        command.args(["--quick", "--filter", "page_direct"]).args(arguments);
        command.env("PAGEPOOL_RUN", "no/absolute/path").output().expect("the binary was built for this test")
    };
    assert!(relative(&[]).status.success());
    let refused = relative(&["--publish"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("PAGEPOOL_RUN"), "{refused:?}");
    for nothing_runs in [&["--list"][..], &["--plot", "bars.svg", "--results", "run.json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool-bench"));
        let refused = command.args(["--publish"]).args(nothing_runs).output();
        let refused = refused.expect("the binary was built for this test");
        assert!(!refused.status.success(), "{refused:?}");
        assert!(text(&refused.stderr).contains("'--publish' cannot be used with"), "{refused:?}");
    }
    let folder = pagepool_lab::TempFolder::new("pagepool-bench").expect("a new folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagepool-bench"));
    command.args(["--publish", "--filter", "page_direct"]).env("PAGEPOOL_RUN", folder.path());
    let mut run = command.stdout(std::process::Stdio::null()).spawn().expect("the binary");
    let is_shown = || {
        let names =
            std::fs::read_dir(folder.path()).into_iter().flatten().flatten().map(|file| file.file_name());
        names.into_iter().any(|name| !name.to_string_lossy().starts_with('.')) // a dot: it is being made
    };
    let (start, mut was_published) = (Instant::now(), false);
    let status = loop {
        was_published |= is_shown();
        if let Some(status) = run.try_wait().expect("a child of this process") {
            break status;
        }
        if start.elapsed() > Duration::from_secs(120) {
            let _ = (run.kill(), run.wait());
            panic!("a bench of one workload takes seconds");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success() && was_published, "{status}; its file was in {}", folder.path().display());
}

#[test]
fn the_table_names_the_machine_and_fits_110_columns() {
    let output = bench(&["--quick", "--filter", "page_"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    for word in ["cpu ", "kernel ", "governor ", "rustc ", "mitigations ", "TSC "] {
        assert!(table.contains(word), "{word} is missing:\n{table}");
    }
    let (_, lines) = table.split_once("workload ").expect("the head of the table");
    assert!(lines.lines().all(|line| line.chars().count() <= 110), "{table}");
    assert!(table.contains("no-softirq-page_pool03"));
}

#[test]
fn a_filter_that_leaves_nothing_and_an_unknown_name_fail() {
    for arguments in [&["--filter", "nonesuch"][..], &["count", "nonesuch", "1024"]] {
        let output = bench(arguments);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains("--list"), "{}", text(&output.stderr));
    }
}

#[test]
fn colours_are_there_where_they_matter() {
    let output = bench(&["--quick", "--filter", "page_fifo1024_touch", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(document["results"][0]["colours"], 16);
    assert_eq!(document["results"][1]["colours"], 1);
}

/// The rows assert that the rings have buffers; `instructions` counts them in the profile `dist` alone.
#[test]
fn rows_over_af_xdps_rings_work_in_this_build() {
    let list = bench(&["--list", "--filter", "xsk_"]);
    let names: Vec<_> =
        text(&list.stdout).split_whitespace().filter(|word| word.starts_with("xsk_")).collect();
    assert_eq!(names.len(), 9, "{list:?}");
    for name in names {
        let output = bench(&["count", name, "1024"]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    }
}

#[test]
fn reports_print_json() {
    for (report, rows) in [("mtu", 25), ("numa", 2), ("contention", 15), ("pools", 27)] {
        let output = bench(&[report, "--quick", "--json"]);
        assert!(output.status.success(), "{report}: {}", text(&output.stderr));
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
        assert_eq!(document["report"], report);
        let cores = document["machine"]["cores"].as_u64();
        assert_eq!(
            cores,
            std::thread::available_parallelism().ok().map(|cores| cores.get() as u64),
            "{report}"
        );
        assert_eq!(document["results"].as_array().map(Vec::len), Some(rows), "{report}");
    }
}

#[test]
fn across_measures_both_in_turns_or_says_what_is_missing() {
    if std::thread::available_parallelism().map_or(1, |cores| cores.get()) < 2 {
        println!("SKIP across_measures_both_in_turns_or_says_what_is_missing: requires two CPUs");
        return;
    }
    let output = bench(&["across", "--quick", "--rounds", "2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let pairs: Vec<_> = document["results"]
        .as_array()
        .expect("rows")
        .iter()
        .flat_map(|row| row["pairs"].as_array().expect("pairs"))
        .collect();
    assert_eq!(pairs.len() % 2, 0, "each row has a pair for each round");
    assert!(pairs.len() >= 2 * 6);
    assert!(pairs.iter().all(|pair| pair["ours_ns"].as_f64() > Some(0.0)));
    let theirs = pairs.iter().filter(|pair| pair["mempool_ns"].is_f64()).count();
    assert!(theirs == 0 || theirs == pairs.len(), "{theirs} of {}", pairs.len());
    let without = std::process::Command::new(env!("CARGO_BIN_EXE_pagepool-bench"))
        .args(["across", "--quick", "--rounds", "1"])
        .env("PKG_CONFIG_LIBDIR", "/nonexistent")
        .env("PKG_CONFIG_PATH", "")
        .output()
        .expect("it runs");
    assert!(without.status.success(), "{}", text(&without.stderr));
    assert!(text(&without.stdout).contains("DPDK: not measured"), "{}", text(&without.stdout));
}
