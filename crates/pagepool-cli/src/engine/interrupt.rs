//! Ctrl-C, and being asked to end: the first one ends a run in order, the second one the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that the first one raises.
pub fn listen() -> Result<Arc<AtomicBool>, String> {
    raise().map_err(|error| format!("cannot handle Ctrl-C: {error}"))
}

fn raise() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}
