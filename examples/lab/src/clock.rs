//! The processor's clock.

// UNSAFETY: an instruction that reads the clock.
#![allow(unsafe_code)]

/// The time-stamp counter: cycles at the processor's nominal rate. Without one, nanoseconds.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU supports the instruction, which accesses no memory.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::LazyLock;
        use std::time::Instant;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as u64
    }
}
