//! The example receives, with either allocator.

use std::process::Command;

fn receives(allocator: &str) {
    let example = env!("CARGO_BIN_EXE_pagepool-in-io-uring");
    let run = Command::new(example).args(["--allocator", allocator, "--count", "5000"]).output();
    let run = run.expect("the example runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{stdout}");
    assert!(run.status.success(), "{stdout}{stderr}");
    let expected = "20480000 bytes moved, 0 missing, 0 wrong, 128 of 128 buffers returned";
    assert!(stdout.starts_with("SKIP") || stdout.contains(expected), "{stdout}{stderr}");
}

#[test]
fn with_a_pool() {
    receives("pool");
}

#[test]
fn with_a_fixed_set() {
    receives("own");
}
