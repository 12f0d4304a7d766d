//! The system calls of this command: CPUs, capabilities, signals, terminals and waiting. `rustix` makes those
//! that it has, `libc` the others.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

#[cfg(feature = "full")]
pub mod screen;

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::Duration;

pub use rustix::event::{PollFd, PollFlags};
use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{isatty, tcgetwinsize};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, CpuSet, capabilities, sched_getaffinity, sched_setaffinity, set_capabilities,
    set_current_timer_slack, set_no_new_privs,
};

/// The CPUs that this thread may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// The first two CPUs that this thread may run on, if there are two.
pub fn two_cpus() -> Option<[usize; 2]> {
    allowed_cpus().first_chunk().copied()
}

/// Keeps the calling thread on some CPUs. Returns whether the kernel agreed.
pub fn keep_on(cpus: &[usize]) -> bool {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).is_ok() // the kernel refuses an empty set
}

/// Makes the kernel end the sleeps of this thread at most 5 µs late. Its default is 50 µs.
pub fn sleep_exactly() {
    let _ = set_current_timer_slack(NonZeroU64::new(5000)); // no kernel refuses it; sleeps would be longer
}

/// The capabilities that this thread may use; none if the kernel does not say.
pub fn permitted_capabilities() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted)
}

/// The capabilities in effect in this thread. If the kernel does not say, all: a call that lacks one reports
/// it.
pub fn effective_capabilities() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective)
}

/// The names of capabilities, as in capabilities(7).
pub fn capability_names(capabilities: CapabilitySet) -> Vec<String> {
    capabilities.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

/// Capabilities as a list in words: `CAP_BPF, CAP_NET_RAW and CAP_PERFMON`.
pub fn capability_list(capabilities: CapabilitySet) -> String {
    let names = capability_names(capabilities);
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// The columns and rows of a terminal; `None` if it is not a terminal.
pub fn terminal_size(of: impl AsFd) -> Option<(u16, u16)> {
    isatty(&of).then(|| tcgetwinsize(&of).map_or((0, 0), |size| (size.ws_col, size.ws_row)))
}

/// The most bytes that this process may lock without a capability; `None`: any number.
pub fn lockable_bytes() -> Option<u64> {
    // rustix's getrlimit panics where a filter refuses the call.
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    line?.split_whitespace().nth(1)?.parse().ok()
}

/// Makes this thread, and those that it starts, give up all capabilities except these, for ever: no program
/// that it executes gets them back, which a program executed by root otherwise does.
pub fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let (effective, permitted) = (effective & kept, permitted & kept);
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?)
}

/// Waits at most this long for what one of these files waits for, or for a signal.
pub fn wait_for_any(files: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(files, Some(&time)) {
        Err(Errno::INTR) => files.iter_mut().for_each(PollFd::clear_revents),
        waited => drop(waited?),
    }
    Ok(())
}

/// Whether the kernel waits for its readers on request. It does not if some CPUs are free of ticks.
pub fn has_grace_period() -> bool {
    // SAFETY: the call takes three integers, and touches no memory of ours.
    let known = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    known > 0 && known & libc::c_long::from(libc::MEMBARRIER_CMD_GLOBAL) != 0
}

/// Whether this process ignores a signal.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the kernel writes one sigaction to `action`, which outlives the call, and changes nothing.
    unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a sigaction: one with the default action.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Whether a call failed because this process, or the system, has no descriptor left.
pub fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_listed_in_words() {
        let (raw, lock) = (CapabilitySet::NET_RAW, CapabilitySet::IPC_LOCK);
        assert_eq!(
            (capability_list(raw), capability_list(CapabilitySet::empty())),
            ("CAP_NET_RAW".into(), String::new())
        );
        assert_eq!(capability_list(CapabilitySet::BPF | raw | lock), "CAP_NET_RAW, CAP_IPC_LOCK and CAP_BPF");
    }

    #[test]
    fn a_lack_of_descriptors_is_no_other_error() {
        assert!([Errno::MFILE, Errno::NFILE].map(io::Error::from).iter().all(is_lack_of_descriptors));
        let others =
            [Errno::CONNABORTED, Errno::INTR, Errno::PERM, Errno::NOMEM, Errno::NOBUFS, Errno::PROTO];
        assert!(!others.map(io::Error::from).iter().any(is_lack_of_descriptors));
    }
}
