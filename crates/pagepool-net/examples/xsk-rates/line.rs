//! The round trip of a cache line between two CPUs. In a virtual machine it may change during a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use pagepool_net::{ticks, ticks_per_second};

/// Measured trips. Few, because another program may run on either CPU.
const TRIPS: u64 = 2000;
/// Looks at the line before a side gives up, because the other one does not run. There are no pauses between
/// the looks: the length of a pause differs between CPUs.
const LOOKS: u64 = 1 << 32;

/// Odd numbers go out, even ones come back.
#[repr(align(128))]
struct Line(AtomicU64);

pub fn run(words: &[&str]) -> Result<String, String> {
    let cpus: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let &[near, far] = &cpus[..] else { return Err("use line CPU CPU".into()) };
    let line = Line(AtomicU64::new(0));
    let pinned = |cpu| pagepool_lab::pin(cpu).map_err(|error| format!("CPU {cpu}: {error}"));
    cpus.iter().try_for_each(|&cpu| pinned(cpu))?; // before one side waits for the other
    let trips = thread::scope(|threads| {
        let answers = threads.spawn(|| pinned(far).and_then(|()| answer(&line)));
        let trips = pinned(near).and_then(|()| measure(&line));
        answers.join().map_err(|_| "the other thread panicked")?.and(trips)
    })?;
    let ns = trips[trips.len() / 10] as f64 * 1e9 / ticks_per_second() as f64;
    Ok(format!(r#"{{"line_ns":{ns:.0}}}"#))
}

/// The ticks of each trip, sorted.
fn measure(line: &Line) -> Result<Vec<u64>, String> {
    let mut trips = Vec::with_capacity(TRIPS as usize);
    for trip in 0..TRIPS {
        let start = ticks();
        line.0.store(2 * trip + 1, Ordering::Release);
        await_value(line, 2 * trip + 2)?;
        trips.push(ticks() - start);
    }
    trips.sort_unstable();
    Ok(trips)
}

fn answer(line: &Line) -> Result<(), String> {
    for trip in 0..TRIPS {
        await_value(line, 2 * trip + 1)?;
        line.0.store(2 * trip + 2, Ordering::Release);
    }
    Ok(())
}

fn await_value(line: &Line, value: u64) -> Result<(), String> {
    for _ in 0..LOOKS {
        if line.0.load(Ordering::Acquire) == value {
            return Ok(());
        }
    }
    Err("the other CPU does not answer: give two CPUs that this process may use".into())
}
