//! Threads on one CPU, for measurements.

use std::io;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// A thread that was just started has its name by then.
const LIMIT: Duration = Duration::from_secs(5);

/// This thread, and those that it starts from now on, run on one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(cpu))?)
}

/// The threads of this process with this name run on one CPU. Waits until there is one.
///
/// ```
/// # use std::sync::mpsc;
/// let (stop, stopped) = mpsc::channel::<()>();
/// let named = std::thread::Builder::new().name("a-name".into());
/// let thread = named.spawn(move || stopped.recv().is_ok()).expect("a thread");
/// assert_eq!(pagepool_lab::pin_named("a-name", 0).expect("it is allowed"), 1);
/// # stop.send(()).expect("it waits");
/// # thread.join().expect("it does not panic");
/// ```
pub fn pin_named(name: &str, cpu: usize) -> io::Result<usize> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let pinned = pin_those_named(name, cpu)?;
        if pinned > 0 {
            return Ok(pinned);
        }
        std::thread::yield_now();
    }
    Err(io::Error::other(format!("no thread {name:?} within {LIMIT:?}")))
}

fn pin_those_named(name: &str, cpu: usize) -> io::Result<usize> {
    let mut pinned = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let path = thread?.path();
        let Ok(comm) = std::fs::read_to_string(path.join("comm")) else { continue }; // it ended
        if comm.trim_end() == name {
            let number = path.file_name().and_then(|number| number.to_str()?.parse().ok());
            sched_setaffinity(number.and_then(Pid::from_raw), &only(cpu))?;
            pinned += 1;
        }
    }
    Ok(pinned)
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}
