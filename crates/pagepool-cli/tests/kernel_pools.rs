//! `pagepool list --kernel`: the page pools of the kernel that this test runs on. A case in a guest has one
//! of Linux 7.3 with a driver that lists its pools.

mod between;

use std::process::Command;
use std::time::Duration;

use between::{binary, text};
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
    for head in ["id", "interface", "napi", "inflight", "memory", "detached", "recycled"] {
        assert!(shown.lines().next().is_some_and(|line| line.contains(head)), "{shown}");
    }
    assert_eq!(shown.contains("CONFIG_PAGE_POOL_STATS"), has_stats == false, "{shown}");
}

/// What the command prints in two and a half seconds of a watch.
fn watched(arguments: &[&str]) -> String {
    let arguments = [&["list", "--kernel", "--watch"], arguments].concat();
    let mut child = binary(&arguments).spawn().expect("the binary was built for this test");
    std::thread::sleep(Duration::from_millis(2500));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("a shell's kill");
    assert!(child.wait().expect("a child").success());
    std::io::read_to_string(child.stdout.take().expect("piped")).expect("text")
}

#[test]
fn a_watch_shows_the_kernels_page_pools_every_second_until_it_is_interrupted() {
    let name = "a_watch_shows_the_kernels_page_pools_every_second_until_it_is_interrupted";
    let Some(once) = listed(name, &[]) else { return };
    let shown = watched(&[]);
    let head = once.lines().next().expect("a head, or that there are none");
    let count = shown.lines().filter(|line| *line == head).count();
    assert!((2..=3).contains(&count) && shown.contains("\n\n") && !shown.contains('\x1b'), "{shown}");
    let objects = watched(&["--json"]);
    let objects: Vec<Value> =
        objects.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect();
    assert!((2..=3).contains(&objects.len()), "{objects:?}");
    assert!(objects.iter().all(|object| object["kernel_pools"].is_array()), "{objects:?}");
}
