//! A bare ring between two threads: it hands over buffers in the two-core workloads, and is their floor.
//!
//! What   `rtrb`'s ring of 1024 elements, moved in whole bursts. `rtrb` moves elements that are not `Copy`
//!        one by one, at 28 instructions each for both sides; a burst here is two copies of memory, at 2.
//! Who    [`BurstSender`] belongs to one thread, [`BurstReceiver`] to another; both are `Send`, neither is
//!        `Clone`.
//! Absent on purpose: elements sent after the receiver ended are not dropped.

// UNSAFETY: a burst moves between a vector and the ring's slots as memory; neither side drops it.
#![expect(unsafe_code)]

use std::hint::spin_loop;
use std::mem::ManuallyDrop;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::measure::workload::Ready;

pub const CAPACITY: usize = 1024;
pub const BURST: usize = 32;

pub struct BurstSender<T>(Producer<ManuallyDrop<T>>);

pub struct BurstReceiver<T>(Consumer<ManuallyDrop<T>>);

pub fn ring<T: Send>() -> (BurstSender<T>, BurstReceiver<T>) {
    let (sender, receiver) = RingBuffer::new(CAPACITY);
    (BurstSender(sender), BurstReceiver(receiver))
}

impl<T: Send> BurstSender<T> {
    /// Moves all of `burst` into the ring; false: there is no room, and nothing moved.
    #[inline(always)]
    pub fn push(&mut self, burst: &mut Vec<T>) -> bool {
        let Ok(mut chunk) = self.0.write_chunk_uninit(burst.len()) else { return false };
        let mut from = burst.as_ptr();
        let (first, second) = chunk.as_mut_slices();
        for slots in [first, second] {
            // SAFETY: both parts of the chunk together have as many slots as the burst has elements.
            unsafe { slots.as_mut_ptr().cast::<T>().copy_from_nonoverlapping(from, slots.len()) };
            from = from.wrapping_add(slots.len());
        }
        // SAFETY: the elements have moved into the ring; the vector must not drop them.
        unsafe { burst.set_len(0) };
        // SAFETY: every slot of the chunk was just written.
        unsafe { chunk.commit_all() };
        true
    }
}

impl<T: Send> BurstReceiver<T> {
    /// Moves exactly `n` elements into the spare capacity of `burst`; false: there were too few, or no room,
    /// and nothing moved. Never grows the vector.
    #[inline(always)]
    pub fn pop(&mut self, burst: &mut Vec<T>, n: usize) -> bool {
        let room = burst.spare_capacity_mut();
        if room.len() < n {
            return false;
        }
        let Ok(chunk) = self.0.read_chunk(n) else { return false };
        let mut to = room.as_mut_ptr().cast::<T>();
        let (first, second) = chunk.as_slices();
        for slots in [first, second] {
            // SAFETY: the vector has room for `n` elements, as many as both parts of the chunk have together.
            unsafe { to.copy_from_nonoverlapping(slots.as_ptr().cast(), slots.len()) };
            to = to.wrapping_add(slots.len());
        }
        // SAFETY: the `n` elements after the vector's length were just initialised.
        unsafe { burst.set_len(burst.len() + n) };
        chunk.commit_all(); // drops nothing: the elements are in the vector
        true
    }
}

impl<T> Drop for BurstReceiver<T> {
    fn drop(&mut self) {
        while let Ok(element) = self.0.pop() {
            drop(ManuallyDrop::into_inner(element));
        }
    }
}

/// One side fills bursts and sends them, the other receives and empties them.
pub fn relay<T: Send + 'static>(
    mut fill: impl FnMut(&mut Vec<T>) + 'static,
    mut empty: impl FnMut(&mut Vec<T>) + Send + 'static,
) -> Ready {
    let (mut tx, mut rx) = ring();
    let (mut burst, mut got) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let produce = move |n| {
        for _ in 0..n / BURST {
            fill(&mut burst);
            while !tx.push(&mut burst) {
                spin_loop();
            }
        }
    };
    let consume = move |n| {
        for _ in 0..n / BURST {
            while !rx.pop(&mut got, BURST) {
                spin_loop();
            }
            empty(&mut got);
        }
    };
    Ready::two_cores(produce, consume)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn gives_elements_in_order_across_the_wrap() {
        let (mut tx, mut rx) = ring();
        let (mut burst, mut out) = (Vec::with_capacity(48), Vec::with_capacity(48));
        for round in 0..100u64 {
            burst.extend(round * 48..(round + 1) * 48);
            assert!(tx.push(&mut burst));
            assert!(burst.is_empty());
            assert!(rx.pop(&mut out, 48));
            assert_eq!(out, (round * 48..(round + 1) * 48).collect::<Vec<_>>());
            out.clear();
        }
    }

    #[test]
    fn refuses_a_burst_that_does_not_fit_and_leaves_it_whole() {
        let (mut tx, mut rx) = ring();
        let mut burst = (0..CAPACITY).collect::<Vec<_>>();
        assert!(tx.push(&mut burst));
        burst.push(7);
        assert!(!tx.push(&mut burst));
        assert_eq!(burst, [7]);
        let mut out = Vec::with_capacity(1);
        assert!(rx.pop(&mut out, 1));
        assert!(tx.push(&mut burst));
    }

    #[test]
    fn refuses_to_pop_what_is_not_there_and_what_has_no_room() {
        let (mut tx, mut rx) = ring();
        let mut out = Vec::with_capacity(4);
        assert!(!rx.pop(&mut out, 1));
        tx.push(&mut vec![1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(!rx.pop(&mut out, 8));
        assert!(rx.pop(&mut out, 4));
        assert_eq!(out, [1, 2, 3, 4]);
    }

    #[test]
    fn drops_elements_that_were_never_popped() {
        let witness = Arc::new(());
        let (mut tx, rx) = ring();
        tx.push(&mut vec![witness.clone(), witness.clone()]);
        drop(tx);
        drop(rx);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn two_threads_lose_and_repeat_nothing() {
        const N: u64 = 32 * 4096;
        let (mut tx, mut rx) = ring();
        let producer = std::thread::spawn(move || {
            let mut burst = Vec::with_capacity(32);
            for at in (0..N).step_by(32) {
                burst.extend(at..at + 32);
                while !tx.push(&mut burst) {
                    std::thread::yield_now();
                }
            }
        });
        let (mut out, mut next) = (Vec::with_capacity(32), 0);
        while next < N {
            if rx.pop(&mut out, 32) {
                out.drain(..).for_each(|got| {
                    assert_eq!(got, next);
                    next += 1;
                });
            } else {
                std::thread::yield_now();
            }
        }
        producer.join().expect("the producer does not panic");
    }
}
