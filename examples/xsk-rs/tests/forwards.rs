//! The example forwards, with either allocator.

use std::process::Command;

fn forwards(allocator: &str) {
    let example = env!("CARGO_BIN_EXE_pagepool-under-xsk-rs");
    let run = Command::new(example).args(["--allocator", allocator, "--count", "20000"]).output();
    let run = run.expect("it was built");
    let (said, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{said}");
    assert!(run.status.success(), "{said}{errors}");
    let whole = "40000 packets moved, 0 missing, 0 wrong, 4096 of 4096 buffers home";
    assert!(said.starts_with("SKIP") || said.contains(whole), "{said}{errors}");
}

#[test]
fn frames_of_a_pool() {
    forwards("pool");
}

#[test]
fn frames_of_a_list() {
    forwards("own");
}
