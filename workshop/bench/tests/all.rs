//! All tests of the program that do not need a process of their own, in one test program: it is compiled and
//! linked once. `cargo test -p pagepool-bench --test all NAME::` runs those of one file.

mod bench;
mod output;
mod plot;
#[path = "../../../crates/pagepool-cli/tests/program/mod.rs"]
mod program;

/// The tested program.
fn tested() -> std::ffi::OsString {
    env!("CARGO_BIN_EXE_pagepool-bench").into()
}
