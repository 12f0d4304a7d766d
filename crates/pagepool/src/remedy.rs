//! The one table of remedies for errnos of calls.
//!
//! A caller knows what an errno means for its own values: the length of a ring, the name of a folder. This
//! table knows what it means for the process, its limits and its filter of system calls. It never mistakes a
//! filter for a limit.

use std::io;

use libc::{EACCES, EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSYS, EPERM};

/// Calls by name, some with their argument (none: all), errnos (none: all), and the remedy; `None` leaves it
/// to the caller. The first matching row counts.
type RemedyRow = (&'static [&'static str], &'static [i32], Option<&'static str>);

const TABLE: &[RemedyRow] = &[
    // It worked before, or the caller reached a limit of its own: the caller names both.
    (&["membarrier"], &[], None),
    (&["mlock"], &[EPERM, ENOMEM, EAGAIN], None),
    // Files: their owner, and who may write there.
    (FILE_CALLS, &[EPERM, EACCES], None),
    (
        &["clone"],
        &[EAGAIN, ENOMEM],
        Some(
            "this user or cgroup has too many threads (RLIMIT_NPROC, pids.max), or no memory is left for the \
             stack (RLIMIT_AS, memory.max): raise the limit, or use fewer threads",
        ),
    ),
    (
        &["madvise(MADV_DONTFORK)"],
        &[ENOMEM, EAGAIN],
        Some("this process has too many mappings (raise vm.max_map_count), or the kernel has no memory"),
    ),
    (&[], &[EMFILE], Some("too many files are open in this process: raise RLIMIT_NOFILE (ulimit -n)")),
    (&[], &[ENFILE], Some("too many files are open on this machine: raise /proc/sys/fs/file-max")),
    (
        &[],
        &[EPERM, EACCES],
        Some(
            "it requires no capability: a seccomp filter or a security module denies it; allow it in the \
             profile of the container or service",
        ),
    ),
    (
        &[],
        &[ENOSYS],
        Some("this kernel lacks the call, or a seccomp filter blocks it: allow it in the filter"),
    ),
    (
        SMALL_CALLS,
        &[ENOMEM, ENOBUFS],
        Some("the kernel has no memory, or this cgroup has reached its limit: raise memory.max"),
    ),
];

const FILE_CALLS: &[&str] =
    &["open", "opendir", "mkdir", "lstat", "fstat", "statfs", "read", "unlink", "link", "flock"];
/// They create little memory, which does not depend on the caller's values.
const SMALL_CALLS: &[&str] = &["bind", "bpf", "eventfd", "fcntl", "socket"];

/// The remedy for a call's errno, if it does not depend on the caller's values: limits, and filters of system
/// calls. `call` is its name, with the argument that matters in parentheses.
///
/// ```
/// use std::io::Error;
/// let remedy = |call, errno| pagepool::remedy(call, &Error::from_raw_os_error(errno));
/// let (eperm, emfile, einval) = (1, 24, 22);
/// assert!(remedy("eventfd", emfile).unwrap().contains("RLIMIT_NOFILE"));
/// assert!(remedy("eventfd", eperm).unwrap().contains("seccomp"));
/// assert_eq!(remedy("eventfd", einval), None);
/// ```
pub fn remedy(call: &str, error: &io::Error) -> Option<&'static str> {
    let errno = error.raw_os_error()?;
    let name = call.split('(').next().unwrap_or(call);
    let is_row = |(calls, errnos, _): &&RemedyRow| {
        let is_call = calls.is_empty() || calls.contains(&name) || calls.contains(&call);
        is_call && (errnos.is_empty() || errnos.contains(&errno))
    };
    TABLE.iter().find(is_row)?.2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_not_taken_for_a_limit_nor_a_limit_for_a_filter() {
        let remedy_for =
            |call, errno| remedy(call, &io::Error::from_raw_os_error(errno)).unwrap_or("the caller's");
        for call in ["clone", "eventfd", "fcntl(F_DUPFD_CLOEXEC)", "madvise(MADV_DONTFORK)", "mmap", "bpf(X)"]
        {
            assert!(
                remedy_for(call, EPERM).contains("seccomp") && remedy_for(call, ENOSYS).contains("seccomp"),
                "{call}"
            );
            assert!(
                remedy_for(call, EMFILE).contains("RLIMIT_NOFILE")
                    && remedy_for(call, ENFILE).contains("file-max")
            );
        }
        assert!(
            remedy_for("clone", EAGAIN).contains("RLIMIT_NPROC")
                && remedy_for("bpf(X)", ENOMEM).contains("memory.max")
                && remedy_for("eventfd", ENOMEM).contains("memory.max")
        );
        assert!(remedy_for("madvise(MADV_DONTFORK)", ENOMEM).contains("max_map_count"));
        let own = [
            ("madvise(MADV_POPULATE_WRITE)", ENOMEM),
            ("mlock", EPERM),
            ("membarrier", EPERM),
            ("open", EACCES),
            ("mmap", ENOMEM),
            ("mmap", 22),
        ];
        assert!(own.iter().all(|&(call, errno)| remedy_for(call, errno) == "the caller's"));
        assert_eq!(remedy("open", &io::ErrorKind::UnexpectedEof.into()), None);
    }
}
