//! Cheap time stamps and the length of their tick.
//!
//! What   on x86-64 a tick is one of the time-stamp counter (TSC); elsewhere a nanosecond. Without a fence:
//!        some ten earlier instructions may run after a stamp, so measure bursts.
//! Cost   about 10 to 40 cycles a stamp; no system call.

// UNSAFETY: an intrinsic reads the time-stamp counter.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code))]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the tick is measured, once per process.
const MEASURED_OVER: Duration = Duration::from_millis(20);

/// The current tick count: cycles of the time-stamp counter on x86-64, nanoseconds elsewhere. Any thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 machine counts time stamps, and Linux lets user mode read them.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The current tick count: cycles of the time-stamp counter on x86-64, nanoseconds elsewhere. Any thread.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks per second, measured against the monotonic clock by the first call, which takes 20 ms.
///
/// ```
/// let before = pagepool_net::ticks();
/// let ns = (pagepool_net::ticks() - before) as f64 / pagepool_net::ticks_per_second() as f64 * 1e9;
/// # assert!(ns < 1e9);
/// ```
pub fn ticks_per_second() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < MEASURED_OVER {
            std::hint::spin_loop();
        }
        ((ticks() - first) as f64 / start.elapsed().as_secs_f64()) as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_advance_and_a_second_has_a_sane_number_of_them() {
        let first = ticks();
        assert!((100_000_000..20_000_000_000).contains(&ticks_per_second()), "{}", ticks_per_second());
        assert!(ticks() - first >= ticks_per_second() / 100, "the measurement itself took 20 ms");
    }
}
