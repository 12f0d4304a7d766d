//! Checks the pools against the model, with operations from libFuzzer.
//!
//! The first four bytes choose the sizes of the pools. Every three bytes after them are an operation. To run
//! it:
//!
//! ```sh
//! cargo +nightly fuzz run model -- -max_total_time=30
//! fuzz/run model -max_total_time=30 # without cargo-fuzz, as in `.ci/run`
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagepool_testing::{Op, PlainMemory, Setup, run};

fuzz_target!(|bytes: &[u8]| {
    let Some((setup, ops)) = bytes.split_first_chunk::<4>() else { return };
    let setup = Setup::from_bytes(*setup);
    let memory = PlainMemory::new(setup.pages, setup.order).expect("the memory is small");
    run(setup, memory, &Op::list(ops));
});
