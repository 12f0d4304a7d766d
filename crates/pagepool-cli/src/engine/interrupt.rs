//! Ctrl-C, being asked to end, and a terminal that is closed: the first one ends a run in order. The second
//! Ctrl-C or SIGTERM ends the process. SIGHUP does not count for that: a shell sends its own after the
//! terminal's, and a service manager SIGTERM besides.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::sys;

/// A flag that the first one raises.
pub fn listen() -> Result<Arc<AtomicBool>, String> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicBool::new(false)); // by one of the two that end the process the second time
    let registered = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        flag::register_conditional_shutdown(signal, 128 + signal, asked.clone())?;
        flag::register(signal, asked.clone())?;
        flag::register(signal, interrupted.clone()).map(drop)
    });
    let registered = registered.and_then(|()| match sys::is_ignored(SIGHUP) {
        true => Ok(()), // by nohup
        false => flag::register(SIGHUP, interrupted.clone()).map(drop),
    });
    registered.map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    Ok(interrupted)
}
