//! The example forwards, with either allocator.

use std::process::Command;

fn forwards(allocator: &str) {
    let example = env!("CARGO_BIN_EXE_pagepool-under-xsk-rs");
    let run = Command::new(example).args(["--allocator", allocator, "--count", "20000"]).output();
    let run = run.expect("the example runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{stdout}");
    assert!(run.status.success(), "{stdout}{stderr}");
    let expected = "40000 packets moved, 0 missing, 0 wrong, 4096 of 4096 buffers returned";
    assert!(stdout.starts_with("SKIP") || stdout.contains(expected), "{stdout}{stderr}");
}

#[test]
fn with_a_pool() {
    forwards("pool");
}

#[test]
fn with_a_list() {
    forwards("own");
}
