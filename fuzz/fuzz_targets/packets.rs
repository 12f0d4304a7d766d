//! Checks packets against plain byte vectors, with operations from libFuzzer, in a pool that a checking IOMMU
//! maps for a device.
//!
//! The first two bytes choose the sizes. Every three bytes after them are an operation.
//!
//! ```sh
//! fuzz/run packets -max_total_time=60
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;

/// The property test of `pagepool-skb` runs the same lists.
#[path = "../../crates/pagepool-skb/tests/packet_run/mod.rs"]
mod packet_run;

use packet_run::{PacketOp, PacketSetup, run_packets};

fuzz_target!(|bytes: &[u8]| {
    let Some((setup, ops)) = bytes.split_first_chunk::<2>() else { return };
    let ops: Vec<_> = ops.as_chunks().0.iter().map(|&op| PacketOp::from_bytes(op)).collect();
    run_packets(PacketSetup::from_bytes(*setup), &ops);
});
