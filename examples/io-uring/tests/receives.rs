//! The example receives, with either allocator.

use std::process::Command;

fn receives(allocator: &str) {
    let example = env!("CARGO_BIN_EXE_pagepool-in-io-uring");
    let run = Command::new(example).args(["--allocator", allocator, "--count", "5000"]).output();
    let run = run.expect("it was built");
    let (said, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{said}");
    assert!(run.status.success(), "{said}{errors}");
    let whole = "20480000 bytes moved, 0 missing, 0 wrong, 128 of 128 buffers home";
    assert!(said.starts_with("SKIP") || said.contains(whole), "{said}{errors}");
}

#[test]
fn buffers_of_a_pool() {
    receives("pool");
}

#[test]
fn a_fixed_set_of_buffers() {
    receives("own");
}
