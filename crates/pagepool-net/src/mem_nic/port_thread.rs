//! A thread that runs the hardware half.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Idle steps in a row before the thread yields; after 1024 it sleeps.
const PATIENCE: u32 = 64;
/// The length of that sleep. Nothing ends it early; a doorbell wakes real hardware.
const NAP: Duration = Duration::from_micros(50);

/// Runs a step repeatedly on its own thread, until it is dropped.
///
/// ```
/// use pagepool_net::PortThread;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// let steps = Arc::new(AtomicU32::new(0));
/// let counted = steps.clone();
/// let thread = PortThread::new("wire", move || {
///     counted.fetch_add(1, Ordering::Relaxed);
///     false // nothing to do: it may rest
/// })?;
/// while steps.load(Ordering::Relaxed) < 3 {
///     std::thread::yield_now();
/// }
/// drop(thread); // waits for the step that is running, and no other follows
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PortThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortThread {
    /// Starts the thread. The step returns whether it did anything; an idle one runs less often.
    pub fn new(name: &str, step: impl FnMut() -> bool + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&stopped, step))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for PortThread {
    /// Waits for the running step. Panics if a step panicked, unless this thread panics already.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let done = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = done
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn run(stop: &AtomicBool, mut step: impl FnMut() -> bool) {
    let mut idle = 0;
    while !stop.load(Ordering::Relaxed) {
        idle = if step() { 0 } else { idle + 1 };
        match idle {
            0..PATIENCE => {}
            PATIENCE..1024 => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}
