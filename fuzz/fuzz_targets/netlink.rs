//! Reads libFuzzer's bytes as the kernel's answers about links, addresses and routes.
//!
//! ```sh
//! fuzz/run netlink -max_total_time=60
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    pagepool_link::testing::netlink_answers(bytes);
});
