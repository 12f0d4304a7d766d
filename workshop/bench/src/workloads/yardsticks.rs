//! The limits of the machine: the measure of all later tables.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::measure::workload::{Ready, Workload};
use crate::rivals::spsc::{self, BURST};

/// Linux's three baselines, a few more, and the floors of the two-core workloads.
pub const TABLE: &[Workload] = &[
    Workload::new("empty_loop", empty_loop).linux("for_loop").about("a counter and a compiler barrier"),
    Workload::new("increment", increment).about("a plain increment of a word in memory"),
    Workload::new("atomic_add", atomic_add).linux("atomic_inc").about("an atomic add, uncontended"),
    Workload::new("atomic_add_both", atomic_add_both)
        .about("an atomic add to a word that the second core adds to at the same time"),
    Workload::new("lock_mutex", lock_mutex).linux("lock").about("take and release a std Mutex, uncontended"),
    Workload::new("lock_spin", lock_spin)
        .about("take a lock by an exchange and release it by a store, uncontended"),
    Workload::new("line_round_trip", line_round_trip)
        .about("a cache line to the second core and back")
        .weight(16),
    Workload::new("spsc_floor", spsc_floor)
        .about("16-byte elements in bursts of 32 through a bare ring of 1024 to the second core")
        .batch(BURST),
    Workload::new("spsc_floor_touch", spsc_floor_touch)
        .about("bursts of 32 through a bare ring; 8 bytes of the buffer of each element written, then read")
        .batch(BURST),
];

/// Each step gets its number.
fn steps(mut step: impl FnMut(usize) + 'static) -> Result<Ready, String> {
    Ok(Ready::one_core(move |n| (0..n).for_each(&mut step)))
}

fn empty_loop() -> Result<Ready, String> {
    steps(|at| _ = black_box(at))
}

fn increment() -> Result<Ready, String> {
    let mut word = Box::new(0u64);
    steps(move |_| *black_box(&mut *word) += 1)
}

fn atomic_add() -> Result<Ready, String> {
    let word = Box::new(AtomicU64::new(0));
    steps(move |_| _ = word.fetch_add(1, Ordering::Relaxed))
}

fn atomic_add_both() -> Result<Ready, String> {
    let line = Arc::new(SharedLine(AtomicU64::new(0)));
    let other = line.clone();
    let add = |line: &SharedLine, n| (0..n).for_each(|_| _ = line.0.fetch_add(1, Ordering::Relaxed));
    Ok(Ready::two_cores(move |n| add(&line, n), move |n| add(&other, n)))
}

fn lock_mutex() -> Result<Ready, String> {
    let lock = Box::new(Mutex::new(0u64));
    steps(move |_| *lock.lock().expect("nobody panics under it") += 1)
}

fn lock_spin() -> Result<Ready, String> {
    let lock = Box::new(AtomicU32::new(0));
    let count = Box::new(AtomicU64::new(0));
    steps(move |_| {
        while lock.swap(1, Ordering::Acquire) != 0 {
            spin_loop();
        }
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        lock.store(0, Ordering::Release);
    })
}

/// A cache line to the second core and back: the producer writes odd numbers, the consumer answers with even
/// ones.
pub fn line_round_trip() -> Result<Ready, String> {
    let line = Arc::new(SharedLine(AtomicU64::new(0)));
    let other = line.clone();
    let produce = move |n| {
        for _ in 0..n {
            let sent = line.0.load(Ordering::Relaxed) + 1;
            line.0.store(sent, Ordering::Release);
            while line.0.load(Ordering::Acquire) != sent + 1 {
                spin_loop();
            }
        }
    };
    let consume = move |n| {
        for _ in 0..n {
            let mut sent = other.0.load(Ordering::Acquire);
            while sent.is_multiple_of(2) {
                spin_loop();
                sent = other.0.load(Ordering::Acquire);
            }
            other.0.store(sent + 1, Ordering::Release);
        }
    };
    Ok(Ready::two_cores(produce, consume))
}

#[repr(align(128))]
struct SharedLine(AtomicU64);

/// As large as a buffer's handle.
type RingElement = [u64; 2];

/// The producer makes each element, the consumer reads it.
pub fn spsc_floor() -> Result<Ready, String> {
    let mut at = 0;
    let fill = move |burst: &mut Vec<RingElement>| {
        burst.extend((at..at + BURST as u64).map(|at| [at, at]));
        at += BURST as u64;
    };
    let empty = |burst: &mut Vec<RingElement>| {
        black_box(&*burst);
        burst.clear();
    };
    Ok(spsc::relay(fill, empty))
}

/// 65 cache lines from one buffer of [`spsc_floor_touch`] to the next, which spreads buffers over the cache's
/// sets.
const STRIDE_WORDS: usize = 4160 / 8;
/// More buffers than the ring and two bursts hold: none is written while it is read. As many as the compared
/// workloads' pools have pages.
const BUFFERS: usize = 3072;

/// The producer writes, and the consumer reads, the first line of a separate buffer per element.
pub fn spsc_floor_touch() -> Result<Ready, String> {
    let words: Vec<AtomicU64> = (0..STRIDE_WORDS * BUFFERS).map(|_| AtomicU64::new(0)).collect();
    let memory: Arc<[AtomicU64]> = words.into();
    let theirs = memory.clone();
    let mut next = 0;
    let fill = move |burst: &mut Vec<RingElement>| {
        let first = next * STRIDE_WORDS;
        burst.extend((0..BURST).map(|i| [(first + i * STRIDE_WORDS) as u64, first as u64]));
        for [buffer, at] in &*burst {
            memory[*buffer as usize + 2].store(*at, Ordering::Relaxed);
        }
        next = (next + BURST) % BUFFERS;
    };
    let empty = move |burst: &mut Vec<RingElement>| {
        let sum = burst.iter().map(|[buffer, _]| theirs[*buffer as usize + 2].load(Ordering::Relaxed));
        black_box(sum.fold(0, u64::wrapping_add));
        burst.clear();
    };
    Ok(spsc::relay(fill, empty))
}

const _: () = assert!(size_of::<RingElement>() == 16);
const _: () = assert!(BUFFERS.is_multiple_of(BURST));
const _: () = assert!(BUFFERS >= spsc::CAPACITY + 2 * BURST);
