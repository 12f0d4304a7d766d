//! Time stamps that nothing measured can move across, and how long their tick is.
//!
//! On x86-64 a tick is one of the time-stamp counter (TSC), read between load fences; elsewhere a nanosecond.

// UNSAFETY: the time-stamp counter is read by an intrinsic.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code))]

use std::sync::OnceLock;

use crate::sys;

/// A stamp that later code cannot run before.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn begin() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 machine counts time stamps, and Linux lets user mode read them.
    let ticks = unsafe { _rdtsc() };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    ticks
}

/// A stamp that earlier code cannot run after.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn end() -> u64 {
    use std::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut cpu = 0;
    // SAFETY: every x86-64 machine of this century has rdtscp; it writes `cpu` alone.
    let ticks = unsafe { __rdtscp(&mut cpu) };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    ticks
}

/// A stamp that later code cannot run before.
#[cfg(not(target_arch = "x86_64"))]
pub fn begin() -> u64 {
    sys::now_ns()
}

/// A stamp that earlier code cannot run after.
#[cfg(not(target_arch = "x86_64"))]
pub fn end() -> u64 {
    sys::now_ns()
}

/// Ticks per nanosecond, measured once against the monotonic clock over 50 ms.
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
