//! Time stamps that measured code cannot move across.
//!
//! On x86-64 a tick is one of the time-stamp counter (TSC), read between load fences; elsewhere a nanosecond.

// UNSAFETY: an intrinsic reads the time-stamp counter.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code))]

use std::sync::OnceLock;

use crate::sys;

/// Later code cannot run before this stamp.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn begin() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 machine has a time-stamp counter, and Linux lets user mode read it.
    let ticks = unsafe { _rdtsc() };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    ticks
}

/// Earlier code cannot run after this stamp.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn end() -> u64 {
    use std::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut cpu = 0;
    // SAFETY: every x86-64 machine of this century has rdtscp; it writes only `cpu`.
    let ticks = unsafe { __rdtscp(&mut cpu) };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    ticks
}

#[cfg(not(target_arch = "x86_64"))]
pub fn begin() -> u64 {
    sys::now_ns()
}

#[cfg(not(target_arch = "x86_64"))]
pub fn end() -> u64 {
    sys::now_ns()
}

/// Measured once against the monotonic clock, over 50 ms.
pub fn ticks_per_ns() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (ns, ticks) = (sys::now_ns(), begin());
        while sys::now_ns() - ns < 50_000_000 {
            std::hint::spin_loop();
        }
        (end() - ticks) as f64 / (sys::now_ns() - ns) as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_advance_and_ticks_have_a_sane_length() {
        let first = begin();
        let second = end();
        assert!(second >= first);
        assert!((0.01..100.0).contains(&ticks_per_ns()));
    }
}
