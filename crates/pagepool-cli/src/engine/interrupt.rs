//! Ctrl-C, and being asked to end: the first one ends a run in order, the second one the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that the first one raises.
pub fn listen() -> Result<Arc<AtomicBool>, String> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let registered = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone())?;
        flag::register(signal, interrupted.clone()).map(drop)
    });
    registered.map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    Ok(interrupted)
}
