//! The limit of memory that a process may lock. Errors are ignored: the next attempt to lock reports them.

// UNSAFETY: two system calls with a structure on the stack.
#![expect(unsafe_code)]

/// Raises the soft limit to the hard limit, which needs no capability.
pub(crate) fn raise_to_hard_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes a limit, which lives as long as the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0 {
        set(libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
    }
}

/// Removes the limit, which requires `CAP_SYS_RESOURCE`; otherwise raises it to the hard limit.
pub(crate) fn end_limit() {
    let none = libc::RLIM_INFINITY;
    if !set(libc::rlimit { rlim_cur: none, rlim_max: none }) {
        raise_to_hard_limit();
    }
}

fn set(limit: libc::rlimit) -> bool {
    // SAFETY: the kernel reads a limit, which lives as long as the call.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 }
}
