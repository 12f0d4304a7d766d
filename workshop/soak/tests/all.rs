//! All tests of the program, in one test program: it is compiled and linked once. `cargo test -p
//! pagepool-soak --test all NAME::` runs those of one file.

mod json_lines;
mod killed;
#[path = "../../../crates/pagepool-cli/tests/program/mod.rs"]
mod program;
mod soak;

/// The tested program.
fn tested() -> std::ffi::OsString {
    env!("CARGO_BIN_EXE_pagepool-soak").into()
}
