//! System calls, except those about memory. No file outside `sys/` calls the kernel.
//!
//! None is a cancellation point: `pthread_cancel` would unwind the thread through Rust, which aborts the
//! process. So calls that the C library makes cancellation points (`read`, `write`, `open`, `close`, `poll`,
//! `nanosleep`, `fallocate`) are made by `syscall(2)`.

// UNSAFETY: system calls; each wrapper says why its call is sound.
#![expect(unsafe_code)]

pub(crate) mod program_place;
pub(crate) mod uncancelled;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn membarrier_command(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes three integers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Registers for [`membarrier`], and calls it once: a filter may allow the registration and refuse the call.
pub(crate) fn membarrier_works() -> io::Result<()> {
    checked(membarrier_command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))?;
    fence_on_all()
}

/// Retries while the kernel has no memory.
fn fence_on_all() -> io::Result<()> {
    let mut done = checked(membarrier_command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED));
    for _ in 1..FENCE_TRIES {
        if !done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOMEM)) {
            break;
        }
        sleep(Duration::from_millis(1));
        done = checked(membarrier_command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED));
    }
    done.map(drop)
}

/// Tries, a millisecond apart, while the kernel has no memory for its list of CPUs.
const FENCE_TRIES: u32 = 1000;

/// A full fence on every running thread of this process. Requires that [`membarrier_works`] succeeded
/// before.
///
/// A filter that is installed later may refuse it. Nothing can replace it: `mprotect`'s TLB shootdown sends
/// no IPI where it is a broadcast (arm64; AMD's INVLPGB from Linux 6.15).
pub(crate) fn membarrier() {
    if fence_on_all().is_ok() {
        return;
    }
    // Continuing without the fence could free memory that another thread still writes.
    eprintln!("pagepool: membarrier failed: {MEMBARRIER_REMEDY}");
    std::process::abort();
}

pub(crate) const MEMBARRIER_REMEDY: &str = "it worked when the first pool was created, and threads rely on \
     it: allow it in the seccomp filter, or install the filter before the first pool";

/// The result of a call that returns a negative number and sets `errno` on failure.
pub(crate) fn checked(result: libc::c_long) -> io::Result<usize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// Repeats a call while signals interrupt it.
pub(crate) fn retried(mut call: impl FnMut() -> libc::c_long) -> io::Result<()> {
    loop {
        match checked(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// The NUMA node of this thread's CPU; 0 if the kernel does not say. A system call only if the CPU changed
/// since this thread's last call.
pub(crate) fn current_node() -> u8 {
    thread_local! {
        static LAST: std::cell::Cell<(i32, u8)> = const { std::cell::Cell::new((-1, 0)) };
    }
    // SAFETY: the call takes no argument and touches no memory.
    let cpu = unsafe { libc::sched_getcpu() };
    let known = LAST.get();
    if known.0 == cpu && cpu >= 0 {
        return known.1;
    }
    let node = query_node();
    LAST.set((cpu, node));
    node
}

fn query_node() -> u8 {
    let mut node: libc::c_uint = 0;
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes one integer.
    let done = unsafe { libc::syscall(libc::SYS_getcpu, none, &raw mut node, none) };
    if done == 0 { u8::try_from(node).unwrap_or(0) } else { 0 }
}

/// A file descriptor of ours; closed when dropped.
#[derive(Debug)]
pub(crate) struct OwnFd(RawFd);

impl OwnFd {
    /// From a call that opens a descriptor.
    pub(crate) fn of(opened: libc::c_long) -> io::Result<Self> {
        Ok(Self(checked(opened)? as RawFd))
    }
}

impl AsFd for OwnFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open until `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl AsRawFd for OwnFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to `self`, which is not used any more.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Reads a file of the kernel, such as `/sys`.
pub(crate) fn read_file(path: &str) -> io::Result<String> {
    let path = CString::new(path).map_err(|_| io::ErrorKind::InvalidInput)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the kernel reads a terminated string.
    let opened = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    let file = OwnFd::of(opened)?;
    let mut text = Vec::new();
    let mut part = [0u8; 4096];
    loop {
        // SAFETY: the kernel writes at most the length of `part`, which lives as long as this call.
        let done = unsafe { libc::syscall(libc::SYS_read, file.0, part.as_mut_ptr(), part.len()) };
        match checked(done) {
            Ok(0) => return String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into()),
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// An event counter at 0; never blocks, closed by `exec`.
pub(crate) fn eventfd() -> io::Result<OwnFd> {
    // SAFETY: the call takes two integers.
    OwnFd::of(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }.into())
}

/// Adds one to an event counter and wakes its waiters. A full counter has woken them already.
pub(crate) fn eventfd_signal(event: &OwnFd) {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes, which live as long as this call.
    let done = unsafe { libc::syscall(libc::SYS_write, event.0, &raw const one, size_of_val(&one)) };
    let done = checked(done).map_err(|error| error.kind());
    debug_assert!(matches!(done, Ok(8) | Err(io::ErrorKind::WouldBlock)), "an eventfd: {done:?}");
}

/// Sets an event counter to 0; returns its old value.
pub(crate) fn eventfd_take(event: &OwnFd) -> u64 {
    let mut count = 0u64;
    // SAFETY: the kernel writes eight bytes, which live as long as this call.
    let done = unsafe { libc::syscall(libc::SYS_read, event.0, &raw mut count, size_of::<u64>()) };
    if done == 8 { count } else { 0 }
}

pub(crate) fn eventfd_is_set(event: &OwnFd) -> bool {
    let mut polled = libc::pollfd { fd: event.0, events: libc::POLLIN, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel reads and writes one entry, and reads a time, which live as long as this call.
    unsafe { libc::syscall(libc::SYS_ppoll, &raw mut polled, 1, &raw const at_once, mask, 0) > 0 }
}

/// Sleeps; less if a signal handler runs.
pub(crate) fn sleep(time: Duration) {
    futex_wait(&AtomicU32::new(0), 0, Some(time));
}

/// Waits until `word` is woken, at most `timeout`. Returns at once if `word` is not `expected`; `false` if
/// the time is over. May return early: the caller must check the word again.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: i32::try_from(t.as_secs()).unwrap_or(i32::MAX).into(), // 68 years
        tv_nsec: t.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the reference, the time as long as this call.
    let done = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, limit) };
    done == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes all that wait for `word`.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address only as a key.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

/// Registers functions for every `fork`: `prepare` and `in_parent` run in the thread that forks, `in_child`
/// first in the child. `in_child` may only make system calls and take no lock.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: the functions exist as long as the library; the C library drops them when it unloads the
    // library.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Prints why and aborts. For a child of `fork`, where any lock may be held for ever.
pub(crate) fn abort_with(why: &[u8]) -> ! {
    // SAFETY: the kernel reads the bytes, which live as long as this call.
    unsafe { libc::syscall(libc::SYS_write, 2, why.as_ptr(), why.len()) };
    std::process::abort()
}

/// The kernel's id of this thread, and its name padded with zeroes.
pub(crate) fn thread_id_and_name() -> (u64, [u8; 16]) {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, which live as long as this call.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    // SAFETY: the call takes no argument and touches no memory.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    (u64::try_from(id).unwrap_or(0), name)
}

/// Milliseconds of a clock in steps of 1 to 10 ms, common to all processes of a boot. No system call.
pub fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time lives as long as this call; a missing clock leaves it unchanged.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000)
}

/// Drops every privilege of the calling thread only; for tests.
#[cfg(test)]
pub(crate) fn drop_privileges_of_this_thread() -> bool {
    let nobody = 65534;
    // SAFETY: the raw call changes the credentials of this thread only.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
    done == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn event_counter_counts_and_empties() {
        let event = eventfd().unwrap();
        assert_eq!(eventfd_take(&event), 0);
        eventfd_signal(&event);
        eventfd_signal(&event);
        assert_eq!(eventfd_take(&event), 2);
    }

    #[test]
    fn a_call_that_signals_interrupt_is_made_again_and_no_other() {
        let errors = |errors: &[i32]| {
            let mut left = errors.iter();
            let done = retried(|| {
                let Some(error) = left.next() else { return 0 };
                // SAFETY: the call takes no argument and touches no memory.
                let errno = unsafe { libc::__errno_location() };
                // SAFETY: it is this thread's error number.
                unsafe { errno.write(*error) };
                -1
            });
            (done.err().and_then(|error| error.raw_os_error()), left.len())
        };
        assert_eq!(errors(&[libc::EINTR, libc::EINTR]), (None, 0));
        assert_eq!(errors(&[libc::EINTR, libc::ENOSPC, libc::EINTR]), (Some(libc::ENOSPC), 1));
    }

    #[test]
    fn a_file_is_read_as_the_standard_library_reads_it() {
        for file in ["/proc/self/maps", "/proc/sys/kernel/osrelease", "/proc/version"] {
            let (ours, theirs) = (read_file(file).unwrap(), std::fs::read_to_string(file).unwrap());
            assert_eq!(ours.lines().last(), theirs.lines().last(), "{file}");
        }
        let long = std::env::temp_dir().join(format!("pagepool-read-{}", std::process::id()));
        std::fs::write(&long, "a line\n".repeat(2000)).unwrap();
        assert_eq!(read_file(long.to_str().unwrap()).unwrap(), "a line\n".repeat(2000), "several reads");
        std::fs::remove_file(long).unwrap();
        assert_eq!(read_file("/proc/self/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(read_file("/proc/\0").is_err());
    }

    #[test]
    fn futex_times_out_refuses_and_wakes() {
        let word = AtomicU32::new(7);
        assert!(!futex_wait(&word, 7, Some(Duration::from_millis(5))), "nobody wakes: the time ends");
        assert!(futex_wait(&word, 8, None), "another value: no waiting");
        std::thread::scope(|s| {
            s.spawn(|| {
                while word.load(Ordering::Acquire) == 7 {
                    assert!(futex_wait(&word, 7, Some(Duration::from_secs(60))), "nobody woke it");
                }
            });
            word.store(9, Ordering::Release);
            futex_wake_all(&word);
        });
    }
}
