//! The command has the probes that it can reach.

use std::process::Command;

use pagepool::PoolProbe;

/// Probes at what the command never does: it keeps its memory, and ends with its pools.
const OUT_OF_REACH: [&str; 2] = ["trim", "stall"];

#[test]
fn a_tracer_finds_the_probes_of_the_command() {
    let notes = Command::new("readelf").arg("-n").arg(env!("CARGO_BIN_EXE_pagepool")).output();
    let Ok(notes) = notes else {
        return println!("SKIP a_tracer_finds_the_probes_of_the_command: readelf is not installed");
    };
    let notes = String::from_utf8(notes.stdout).unwrap();
    let found: Vec<_> = notes.lines().filter_map(|line| line.trim().strip_prefix("Name: ")).collect();
    for probe in PoolProbe::ALL.iter().filter(|probe| !OUT_OF_REACH.contains(&probe.name)) {
        assert!(found.contains(&probe.name), "{}: {found:?}", probe.name);
    }
}
