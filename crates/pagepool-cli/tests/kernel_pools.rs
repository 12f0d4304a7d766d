//! `pagepool list --kernel`: the page pools of the kernel that this test runs on. A case in a guest has one
//! of Linux 7.3 with a driver that lists its pools.

use std::time::Instant;

use crate::between::{Reading, binary, text};
use serde_json::Value;

/// What the command prints with these arguments, or `None` after a line that says why nothing.
fn listed(test: &str, arguments: &[&str]) -> Option<String> {
    let arguments = [&["list", "--kernel"], arguments].concat();
    let output = binary(&arguments).output().expect("the binary was built for this test");
    let said = text(&output.stderr);
    if output.status.code() == Some(1) && said.contains("Linux 6.8") {
        println!("SKIP {test}: {}", said.trim());
        return None;
    }
    assert!(output.status.success() && said.is_empty(), "{said}");
    Some(text(&output.stdout).to_owned())
}

#[test]
fn the_kernels_page_pools_are_listed_for_people_and_programs() {
    let name = "the_kernels_page_pools_are_listed_for_people_and_programs";
    let Some(document) = listed(name, &["--json"]) else { return };
    let document: Value = serde_json::from_str(&document).expect("JSON and nothing else");
    let (has_stats, pools) = (&document["has_stats"], document["kernel_pools"].as_array().expect("a list"));
    if has_stats != true {
        println!("SKIP {name}: the counters, for this kernel is without CONFIG_PAGE_POOL_STATS");
    }
    for pool in pools {
        assert!(pool["id"].is_u64() && pool["inflight"].is_u64(), "{pool}");
        assert_eq!(
            pool["stats"].as_object().map_or(0, |stats| stats.len()),
            if has_stats == true { 11 } else { 0 }
        );
    }
    let Some(shown) = listed(name, &[]) else { return };
    if pools.is_empty() {
        println!("SKIP {name}: the rows, for no driver of this machine lists its pools");
        return assert!(shown.starts_with("No page pools: "), "{shown}");
    }
    for head in ["id", "interface", "napi", "inflight", "memory", "detached", "ever%"] {
        assert!(shown.lines().next().is_some_and(|line| line.contains(head)), "{shown}");
    }
    assert_eq!(shown.contains("CONFIG_PAGE_POOL_STATS"), has_stats == false, "{shown}");
}

/// What the command prints in a watch until a line like this has come twice: hardly more than one a second.
fn watched(arguments: &[&str], is_head: impl Fn(&str) -> bool) -> String {
    let (arguments, start) = ([&["list", "--kernel", "--watch"], arguments].concat(), Instant::now());
    let mut reading = Reading::new(binary(&arguments).spawn().expect("the binary was built for this test"));
    let shown = reading.until_seen(2, &is_head);
    assert!(reading.child.wait().expect("a child").success(), "{shown}");
    let count = shown.lines().filter(|line| is_head(line)).count() as u64;
    assert!((2..=1 + start.elapsed().as_secs()).contains(&count), "{:?}: {shown}", start.elapsed());
    shown
}

#[test]
fn watching_kernel_pools_prints_them_until_interrupted() {
    let name = "watching_kernel_pools_prints_them_until_interrupted";
    let Some(once) = listed(name, &[]) else { return };
    let head = once.lines().next().expect("a head, or that there are none");
    let shown = watched(&[], |line| line == head);
    assert!(shown.contains("\n\n") && !shown.contains('\x1b'), "{shown}");
    let objects = watched(&["--json"], |line| line.starts_with('{'));
    let objects: Vec<Value> =
        objects.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect();
    assert!(objects.iter().all(|object| object["kernel_pools"].is_array()), "{objects:?}");
}
