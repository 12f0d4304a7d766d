//! Every system call of this command: pinning, hardware counters, page faults, the clock, broken pipes, files
//! in memory, and processes that end with others.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;

/// Lets a pipe that nobody reads any more end the process, as it ends any other command: `pagepool demo |
/// head`. Rust's runtime turns that off, and printing panics instead.
pub fn end_with_the_reader() {
    // SAFETY: the default action is no function of ours, so there is nothing that could be called at a bad
    // moment.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The CPUs that this thread may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the kernel writes at most `size` bytes to the set, which outlives the call.
    let failed = unsafe { libc::sched_getaffinity(0, size, set.as_mut_ptr()) } != 0;
    // SAFETY: a cpu_set_t is an array of integers, and it was zeroed.
    let set = unsafe { set.assume_init() };
    if failed {
        return vec![0];
    }
    let most = libc::CPU_SETSIZE as usize;
    // SAFETY: `cpu` is below CPU_SETSIZE.
    (0..most).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The first two of them, if there are so many.
pub fn two_cpus() -> Option<[usize; 2]> {
    allowed_cpus().first_chunk().copied()
}

/// Keeps the calling thread on one CPU; says whether the kernel agreed.
pub fn pin_to(cpu: usize) -> bool {
    let set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: a cpu_set_t is an array of integers, and it was zeroed.
    let mut set = unsafe { set.assume_init() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: `cpu` is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the set, which outlives the call.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0 }
}

/// Keeps this thread on the first CPU it may use and gives the second one.
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

/// A file that lies in memory, in no directory; the name is what `/proc` shows.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the kernel reads the name, which ends with a zero and outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened just now and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Has the kernel kill this process when its parent ends: precisely, when the thread ends that started it.
/// False if the parent has ended already.
pub fn die_with(parent: u32) -> io::Result<bool> {
    // SAFETY: the call takes integers.
    let failed = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(std::os::unix::process::parent_id() == parent)
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

/// Opens a counter of the calling thread's user-mode events. Reading 8 bytes from the file gives the count.
pub fn open_hardware_counter(what: Hardware) -> io::Result<File> {
    let attr = PerfAttr { size: 64, config: what as u64, flags: USER_MODE_ONLY, ..PerfAttr::default() };
    // SAFETY: perf_event_open reads `size` bytes of the attributes, which outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attr, 0, -1, -1, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened just now and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}
