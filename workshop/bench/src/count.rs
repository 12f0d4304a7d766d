//! `pagepool-bench count NAME ITERATIONS`: runs a workload without a clock, for external instruction
//! counters.
//!
//! Two runs of different length give the exact instructions per buffer: the difference of instructions
//! divided by that of iterations. The sides of a two-core workload take turns on two threads, one ring's
//! capacity at a time, and never spin. The owner's side runs on a thread, too: the main thread's stack begins
//! where the environment ends, and the alignment of a copy changes its instructions.

use std::sync::Barrier;
use std::thread;

use crate::measure::workload::{Body, RunSide, SendSide, Workload};
use crate::rivals::spsc;

/// `buffers` must be a multiple of 1024.
pub fn run(workload: &Workload, buffers: usize) -> Result<(), String> {
    let run = || run_here(workload, buffers);
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|_| Err("the workload panicked".into()))
}

fn run_here(workload: &Workload, buffers: usize) -> Result<(), String> {
    if !buffers.is_multiple_of(spsc::CAPACITY) {
        return Err(format!("ITERATIONS is {buffers}, but must be a multiple of {}", spsc::CAPACITY));
    }
    match (workload.ready)()?.body {
        Body::OneCore(mut run) => run(buffers),
        Body::TwoCores(produce, consume) => take_turns(produce, consume, buffers / spsc::CAPACITY),
    }
    Ok(())
}

fn take_turns(mut produce: RunSide, mut consume: SendSide, turns: usize) {
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..turns {
                barrier.wait();
                consume(spsc::CAPACITY);
                barrier.wait();
            }
        });
        for _ in 0..turns {
            produce(spsc::CAPACITY);
            barrier.wait();
            barrier.wait();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn refuses_what_a_burst_does_not_divide() {
        let why = run(&Workload::new("", || Err("never made ready".into())), 1000)
            .expect_err("1000 is no multiple of 1024");
        assert!(why.contains("ITERATIONS is 1000"), "{why}");
    }

    #[test]
    fn two_sides_run_in_turns_over_the_same_number() {
        let made = Arc::new(AtomicUsize::new(0));
        let seen = made.clone();
        let produce = move |n| _ = made.fetch_add(n, Ordering::SeqCst);
        let mut before = 0;
        let consume = move |n| {
            assert_eq!(seen.load(Ordering::SeqCst), before + n);
            before += n;
        };
        take_turns(Box::new(produce), Box::new(consume), 5);
    }
}
