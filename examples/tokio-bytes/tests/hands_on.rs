//! The example hands packets on, with either allocator.

use std::process::Command;

fn hands_on(allocator: &str) {
    let example = env!("CARGO_BIN_EXE_pagepool-as-bytes");
    let run = Command::new(example).args(["--allocator", allocator, "--count", "20000"]).output();
    let run = run.expect("it was built");
    let (said, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{said}");
    assert!(run.status.success(), "{said}{errors}");
    let whole = "20000 packets moved, 0 missing, 0 wrong";
    assert!(said.starts_with("SKIP") || said.contains(whole), "{said}{errors}");
}

#[test]
fn frames_of_a_pool() {
    hands_on("pool");
}

#[test]
fn frames_of_a_list() {
    hands_on("own");
}
