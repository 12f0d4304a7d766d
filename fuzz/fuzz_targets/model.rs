//! The pools against the model, over lists of operations that libFuzzer finds.
//!
//! Four bytes choose the sizes of the pools, every three after them are an operation. Either of these runs
//! it:
//!
//! ```sh
//! cargo +nightly fuzz run model -- -max_total_time=30
//! fuzz/run model -max_total_time=30 # the same without cargo-fuzz; what `.ci/run` uses
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagepool_testing::{Op, PlainMemory, Setup, run};

fuzz_target!(|bytes: &[u8]| {
    let Some((setup, ops)) = bytes.split_first_chunk::<4>() else { return };
    let setup = Setup::from_bytes(*setup);
    let memory = PlainMemory::new(setup.pages, setup.order).expect("small");
    run(setup, memory, &Op::list(ops));
});
