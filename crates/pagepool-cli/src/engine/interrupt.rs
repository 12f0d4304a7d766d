//! What a run is told from outside: to end, and to print its figures now.
//!
//! End    Ctrl-C, being asked to end, and a terminal that is closed: the first one ends a run in order. The
//!        second Ctrl-C or SIGTERM ends the process. SIGHUP does not count for that: a shell sends its own
//!        after the terminal's, and a service manager SIGTERM besides. Nor does SIGXCPU, which the kernel
//!        sends every second once the limit on CPU time is reached (`ulimit -S -t`).
//! Print  SIGUSR1, any number of times.
//! Files  SIGXFSZ, which the kernel sends for a write beyond the limit on the size of files (`ulimit -f`,
//!        `LimitFSIZE=`), ends nothing: that write fails, as one on a full disk does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::flag;

use crate::sys;

/// Flags that signals raise.
#[derive(Clone, Debug, Default)]
pub struct RunSignals {
    /// The user wants an end.
    pub end: Arc<AtomicBool>,
    /// Somebody wants the figures of now.
    asked: Arc<AtomicBool>,
}

impl RunSignals {
    /// Whether the user wants an end.
    pub fn interrupted(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether figures were asked for since the last call.
    pub fn take_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Relaxed)
    }
}

/// Flags that are raised from now on.
pub fn listen() -> Result<RunSignals, String> {
    let signals = RunSignals::default();
    let ending = Arc::new(AtomicBool::new(false)); // by one of the two that end the process the second time
    let registered = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        flag::register_conditional_shutdown(signal, 128 + signal, ending.clone())?;
        flag::register(signal, ending.clone())?;
        flag::register(signal, signals.end.clone()).map(drop)
    });
    let registered = registered.and_then(|()| flag::register(SIGUSR1, signals.asked.clone()).map(drop));
    let registered = registered.and_then(|()| match sys::is_ignored(SIGHUP) {
        true => Ok(()), // by nohup
        false => flag::register(SIGHUP, signals.end.clone()).map(drop),
    });
    let registered = registered.and_then(|()| flag::register(SIGXCPU, signals.end.clone()).map(drop));
    registered.map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    Ok(signals)
}

/// Has a write beyond the limit on the size of files fail, in every thread, in place of ending the process.
/// A handler, for programs that this process starts do not inherit one.
pub fn outlive_file_size_limit() -> Result<(), String> {
    let handled = flag::register(SIGXFSZ, Arc::default());
    handled.map(drop).map_err(|error| format!("cannot handle SIGXFSZ: {error}"))
}

/// A flag that is raised when the limit on CPU time is reached, which no longer ends the process then.
pub fn cpu_time_limit() -> Result<Arc<AtomicBool>, String> {
    let reached = Arc::default();
    let handled = flag::register(SIGXCPU, Arc::clone(&reached));
    handled.map(|_| reached).map_err(|error| format!("cannot handle SIGXCPU: {error}"))
}

/// Leaves all of them to the process that started this one: a service manager and `pkill` send them to both.
/// So does the kernel if both have the same limit on CPU time.
pub fn leave_to_parent() -> Result<(), String> {
    let all = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU];
    let left = all.into_iter().try_for_each(|signal| flag::register(signal, Arc::default()).map(drop));
    left.map_err(|error| format!("cannot handle signals: {error}"))
}
