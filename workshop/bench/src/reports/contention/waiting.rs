//! What the threads of the report count and how they wait.

use std::hint::spin_loop;
use std::sync::atomic::AtomicUsize;
use std::thread;

/// Buffers handed over at once.
pub const BURST: usize = 32;
/// As many slots as buffers can be out: nothing leaves the pool.
pub const RING: usize = 16384;

/// On its own cache lines.
#[derive(Default)]
#[repr(align(128))]
pub struct PaddedCount(pub AtomicUsize);

/// If threads share CPUs, every 64th wait yields the CPU.
pub fn pause(spins: usize, shared: bool) {
    if shared && spins.is_multiple_of(64) { thread::yield_now() } else { spin_loop() }
}
