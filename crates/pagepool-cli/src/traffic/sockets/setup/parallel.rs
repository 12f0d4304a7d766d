//! Does one kind of work on many things, on as many threads as there are CPUs.
//!
//! Why    the kernel clears and pins the memory of a queue, and verifies its BPF programs, on the CPU of the
//!        caller. That takes tens of milliseconds per queue, and a card may have many.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Works on all things, and returns the results in their order. After the first error it begins no more.
pub fn in_parallel<T: Send, R: Send>(
    things: Vec<T>,
    work: impl Fn(T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(things.len());
    let mut results: Vec<Option<R>> = things.iter().map(|_| None).collect();
    let to_do = Mutex::new(things.into_iter().zip(&mut results));
    let next = || to_do.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || -> Result<(), String> {
        while let Some((thing, result)) = next() {
            let done = work(thing).inspect_err(|_| while next().is_some() {}); // leaves nothing for others
            *result = Some(done?);
        }
        Ok(())
    };
    thread::scope(|threads| {
        let spawn = |_| thread::Builder::new().spawn_scoped(threads, worker).ok();
        let others: Vec<_> = (1..workers).filter_map(spawn).collect();
        let own = worker();
        let joined = others.into_iter().map(|other| other.join().unwrap_or(Err("a thread panicked".into())));
        joined.fold(own, Result::and)
    })?;
    drop(to_do);
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_things() {
        let squares = in_parallel((0..100).collect(), |of: usize| Ok(of * of)).unwrap();
        assert!(squares.into_iter().eq((0..100).map(|of| of * of)));
        assert_eq!(in_parallel(Vec::<()>::new(), Ok), Ok(Vec::new()));
    }

    #[test]
    fn an_error_ends_the_work() {
        let begun = AtomicUsize::new(0);
        let refused = in_parallel((0..10_000).collect(), |of: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if of == 3 {
                return Err(format!("no {of}"));
            }
            thread::sleep(Duration::from_millis(1)); // working on all would take seconds
            Ok(())
        });
        assert_eq!(refused, Err("no 3".into()));
        assert!(begun.into_inner() < 10_000);
    }
}
