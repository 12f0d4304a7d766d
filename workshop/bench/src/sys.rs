//! The system calls of a measurement: pinning, hardware counters, page faults and the clock.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;

pub use pagepool_cli::sys::{allowed_cpus, two_cpus};

/// Keeps the calling thread on one CPU. Returns whether the kernel agreed.
pub fn pin_to(cpu: usize) -> bool {
    pagepool_cli::sys::keep_on(&[cpu])
}

/// Keeps this thread on the first CPU that it may use, and returns the second one.
pub fn pin_owner() -> Option<usize> {
    let cpus = allowed_cpus();
    if let Some(&first) = cpus.first() {
        pin_to(first);
    }
    cpus.get(1).copied()
}

/// Minor page faults of the calling thread since it began.
pub fn minor_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage to `usage`, which outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: an rusage is made of integers, and it was zeroed.
    unsafe { usage.assume_init() }.ru_minflt as u64
}

/// Nanoseconds of the raw monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to `time`, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a hardware counter counts (`enum perf_hw_id`, linux/perf_event.h).
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Hardware {
    /// `PERF_COUNT_HW_CPU_CYCLES`: cycles of the core's own clock.
    CoreCycles = 0,
    /// `PERF_COUNT_HW_INSTRUCTIONS`.
    Instructions = 1,
}

/// The first published form of `struct perf_event_attr` (64 bytes, PERF_ATTR_SIZE_VER0).
#[derive(Default)]
#[repr(C)]
struct PerfAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<PerfAttr>() == 64, "PERF_ATTR_SIZE_VER0");

/// `exclude_kernel` and `exclude_hv` in the flags of a `perf_event_attr`.
const USER_MODE_ONLY: u64 = 1 << 5 | 1 << 6;

/// Opens a counter of the calling thread's user-mode events. Reading 8 bytes from the file returns the count.
pub fn open_hardware_counter(what: Hardware) -> io::Result<File> {
    let attr = PerfAttr { size: 64, config: what as u64, flags: USER_MODE_ONLY, ..PerfAttr::default() };
    // SAFETY: perf_event_open reads `size` bytes of the attributes, which outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attr, 0, -1, -1, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened just now, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}
