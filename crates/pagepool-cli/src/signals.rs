//! The signals that a run obeys: to end, and to print its figures.
//!
//! End   the first Ctrl-C, SIGTERM, SIGHUP (a closed terminal) or SIGXCPU ends a run in order. The second
//!       Ctrl-C or SIGTERM ends the process. SIGHUP does not count for that: a shell sends its own after the
//!       terminal's, and a service manager sends SIGTERM besides. Nor does SIGXCPU: the kernel sends it every
//!       second after the limit on CPU time is reached (`ulimit -S -t`).
//! Print SIGUSR1, any number of times.
//! Files SIGXFSZ ends nothing. The kernel sends it for a write beyond the limit on file sizes (`ulimit -f`,
//!       `LimitFSIZE=`); that write fails, like one on a full disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ};
use signal_hook::flag;

use crate::sys;

/// How often a wait checks for a signal.
const NAP: Duration = Duration::from_millis(20);

/// Flags that signals set.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Set if the run is to end.
    pub end: Arc<AtomicBool>,
    /// Set if the current figures are to be printed.
    requested: Arc<AtomicBool>,
}

impl Signals {
    pub fn interrupted(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Waits until then, or until a signal ends the command. Returns whether one did.
    pub fn end_before(&self, due: Instant) -> bool {
        while !self.interrupted() && Instant::now() < due {
            sleep(NAP.min(due.saturating_duration_since(Instant::now())));
        }
        self.interrupted()
    }

    /// Whether figures were requested since the last call.
    pub fn take_request(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && self.requested.swap(false, Ordering::Relaxed)
    }
}

/// Installs the handlers; from now on signals set the flags.
pub fn install() -> Result<Signals, String> {
    let signals = Signals::default();
    let ending = Arc::new(AtomicBool::new(false)); // of the signals that end the process the second time
    let registered = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        flag::register_conditional_shutdown(signal, 128 + signal, ending.clone())?;
        flag::register(signal, ending.clone())?;
        flag::register(signal, signals.end.clone()).map(drop)
    });
    let registered = registered.and_then(|()| flag::register(SIGUSR1, signals.requested.clone()).map(drop));
    let registered = registered.and_then(|()| match sys::is_ignored(SIGHUP) {
        true => Ok(()), // by nohup
        false => flag::register(SIGHUP, signals.end.clone()).map(drop),
    });
    let registered = registered.and_then(|()| flag::register(SIGXCPU, signals.end.clone()).map(drop));
    registered.map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    Ok(signals)
}

/// Makes a write beyond the limit on file sizes fail, in every thread, instead of ending the process. A
/// handler does this: programs that this process starts do not inherit it.
pub fn survive_file_size_limit() -> Result<(), String> {
    let handled = flag::register(SIGXFSZ, Arc::default());
    handled.map(drop).map_err(|error| format!("cannot handle SIGXFSZ: {error}"))
}
