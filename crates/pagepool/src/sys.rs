//! Every system call of this crate. No other file calls the kernel.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` (linux/membarrier.h).
const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` (linux/membarrier.h).
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier_command(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes three integers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Makes this process one that [`membarrier`] may be called for; says whether the kernel allows it.
pub(crate) fn membarrier_register() -> bool {
    membarrier_command(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) == 0
}

/// A full fence on every running thread of this process. Only after [`membarrier_register`] said yes.
pub(crate) fn membarrier() {
    let done = membarrier_command(MEMBARRIER_PRIVATE_EXPEDITED);
    debug_assert_eq!(done, 0, "membarrier worked when it was registered");
}

/// A new non-blocking eventfd.
pub(crate) fn eventfd() -> std::io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: eventfd takes two integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd. It cannot fail but for a counter at its limit, when it is readable anyway.
pub(crate) fn eventfd_signal(fd: std::os::fd::BorrowedFd<'_>) {
    use std::os::fd::AsRawFd;
    let one = 1u64;
    // SAFETY: eight readable bytes, as an eventfd wants them.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Sets an eventfd back to 0.
pub(crate) fn eventfd_clear(fd: std::os::fd::BorrowedFd<'_>) {
    use std::os::fd::AsRawFd;
    let mut count = 0u64;
    // SAFETY: eight writable bytes, as an eventfd wants them.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Sleeps while `word` holds `expected`, at most `limit`. May wake early; the caller looks again.
pub(crate) fn futex_wait(
    word: &std::sync::atomic::AtomicU32,
    expected: u32,
    limit: Option<std::time::Duration>,
) {
    let limit = limit.map(|d| libc::timespec {
        tv_sec: d.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: d.subsec_nanos() as libc::c_long,
    });
    let timeout = limit.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the timeout live across the call, and the kernel only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) };
}

/// Wakes everyone who sleeps on `word`.
pub(crate) fn futex_wake_all(word: &std::sync::atomic::AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives across the call; waking reads nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}
