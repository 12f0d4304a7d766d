//! The time since boot, in which the kernel reports when a page pool was destroyed.

// UNSAFETY: the kernel writes a time.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

/// The time since boot, including suspended time (`CLOCK_BOOTTIME`).
pub(crate) fn since_boot() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes one timespec, which outlives the call. It has this clock since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()) };
    // SAFETY: all zeroes are a valid timespec.
    let time = unsafe { time.assume_init() };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_started_when_the_kernel_says() {
        let before = since_boot();
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let range = before.as_secs_f64() - 0.02..=since_boot().as_secs_f64() + 0.02;
        assert!(range.contains(&uptime), "{uptime} in {range:?}");
    }
}
