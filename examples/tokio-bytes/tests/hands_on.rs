//! The example passes packets on, with either allocator.

use std::process::Command;

fn passes_on(allocator: &str) {
    let example = env!("CARGO_BIN_EXE_pagepool-as-bytes");
    let run = Command::new(example).args(["--allocator", allocator, "--count", "20000"]).output();
    let run = run.expect("the example runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{stdout}");
    assert!(run.status.success(), "{stdout}{stderr}");
    let expected = "20000 packets moved, 0 missing, 0 wrong";
    assert!(stdout.starts_with("SKIP") || stdout.contains(expected), "{stdout}{stderr}");
}

#[test]
fn with_a_pool() {
    passes_on("pool");
}

#[test]
fn with_bytes_mut() {
    passes_on("own");
}
