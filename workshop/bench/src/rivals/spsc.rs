//! A bare ring between two threads: it hands over buffers in the two-core workloads, and is their floor.
//!
//! What   `rtrb`'s ring of 32 bursts of a fixed size (of 32 elements, unless one element holds many), each in
//!        cache lines of its own: one copy of memory per side.
//! Who    [`BurstSender`] belongs to one thread, [`BurstReceiver`] to another; both are `Send`, neither is
//!        `Clone`.
//! Absent on purpose: elements sent after the receiver ended are not dropped.

// UNSAFETY: a burst moves between a vector and the ring's slots as memory; neither side drops it.
#![expect(unsafe_code)]

use std::hint::spin_loop;
use std::mem::MaybeUninit;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::measure::workload::Ready;

pub const CAPACITY: usize = 1024;
pub const BURST: usize = 32;

/// Elements that move together. Aligned, because two bursts in one cache line would move it twice.
#[repr(align(64))]
struct Burst<T, const N: usize>(MaybeUninit<[T; N]>);

/// Sends `N` elements at a time.
pub struct BurstSender<T, const N: usize = BURST>(Producer<Burst<T, N>>);

pub struct BurstReceiver<T, const N: usize = BURST>(Consumer<Burst<T, N>>);

/// A ring of [`CAPACITY`] / [`BURST`] slots, each for one burst, whatever its size. The warm-up would not reach
/// all slots of a larger ring.
pub fn ring<T: Send, const N: usize>() -> (BurstSender<T, N>, BurstReceiver<T, N>) {
    let (sender, receiver) = RingBuffer::new(CAPACITY / BURST);
    (BurstSender(sender), BurstReceiver(receiver))
}

impl<T: Send, const N: usize> BurstSender<T, N> {
    /// Moves all of `burst`, which has `N` elements, into the ring; false: there is no room, and nothing
    /// moved.
    #[inline(always)]
    pub fn push(&mut self, burst: &mut Vec<T>) -> bool {
        assert_eq!(burst.len(), N, "a burst is whole");
        let Ok(mut chunk) = self.0.write_chunk_uninit(1) else { return false };
        let (slot, _) = chunk.as_mut_slices();
        // SAFETY: the slot has room for `N` elements, as many as the burst has.
        unsafe { slot.as_mut_ptr().cast::<T>().copy_from_nonoverlapping(burst.as_ptr(), N) };
        // SAFETY: the elements have moved into the ring; the vector must not drop them.
        unsafe { burst.set_len(0) };
        // SAFETY: the slot was just written.
        unsafe { chunk.commit_all() };
        true
    }
}

impl<T: Send, const N: usize> BurstReceiver<T, N> {
    /// Moves the next `N` elements into the spare capacity of `burst`; false: there are none, or no room, and
    /// nothing moved. Never grows the vector.
    #[inline(always)]
    pub fn pop(&mut self, burst: &mut Vec<T>) -> bool {
        let room = burst.spare_capacity_mut();
        if room.len() < N {
            return false;
        }
        let Ok(chunk) = self.0.read_chunk(1) else { return false };
        let (slot, _) = chunk.as_slices();
        // SAFETY: the vector has room for `N` elements, as many as the slot has.
        unsafe { room.as_mut_ptr().cast::<T>().copy_from_nonoverlapping(slot.as_ptr().cast(), N) };
        // SAFETY: the `N` elements after the vector's length were just initialised.
        unsafe { burst.set_len(burst.len() + N) };
        chunk.commit_all(); // drops nothing: the elements are in the vector
        true
    }
}

impl<T, const N: usize> Drop for BurstReceiver<T, N> {
    fn drop(&mut self) {
        while let Ok(Burst(elements)) = self.0.pop() {
            // SAFETY: what is in the ring was written, and is taken out once.
            drop(unsafe { elements.assume_init() });
        }
    }
}

/// One side fills bursts and sends them, the other receives and empties them.
pub fn relay<T: Send + 'static>(
    mut fill: impl FnMut(&mut Vec<T>) + 'static,
    mut empty: impl FnMut(&mut Vec<T>) + Send + 'static,
) -> Ready {
    let (mut tx, mut rx) = ring::<T, BURST>();
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
            while !rx.pop(&mut got) {
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
        let (mut tx, mut rx) = ring::<u64, 32>();
        let (mut burst, mut out) = (Vec::with_capacity(32), Vec::with_capacity(32));
        for round in 0..100u64 {
            burst.extend(round * 32..(round + 1) * 32);
            assert!(tx.push(&mut burst));
            assert!(burst.is_empty());
            assert!(rx.pop(&mut out));
            assert_eq!(out, (round * 32..(round + 1) * 32).collect::<Vec<_>>());
            out.clear();
        }
    }

    #[test]
    fn refuses_a_burst_that_does_not_fit_and_leaves_it_whole() {
        let (mut tx, mut rx) = ring::<usize, 1>();
        (0..CAPACITY / BURST).for_each(|at| assert!(tx.push(&mut vec![at])));
        let mut burst = vec![7];
        assert!(!tx.push(&mut burst));
        assert_eq!(burst, [7]);
        assert!(rx.pop(&mut Vec::with_capacity(1)));
        assert!(tx.push(&mut burst));
    }

    #[test]
    fn refuses_to_pop_what_is_not_there_and_what_has_no_room() {
        let (mut tx, mut rx) = ring::<u32, 4>();
        let mut out = Vec::with_capacity(4);
        assert!(!rx.pop(&mut out));
        tx.push(&mut vec![1, 2, 3, 4]);
        assert!(!rx.pop(&mut Vec::with_capacity(3)));
        assert!(rx.pop(&mut out));
        assert_eq!(out, [1, 2, 3, 4]);
    }

    #[test]
    fn drops_elements_that_were_never_popped() {
        let witness = Arc::new(());
        let (mut tx, rx) = ring::<_, 2>();
        tx.push(&mut vec![witness.clone(), witness.clone()]);
        drop(tx);
        drop(rx);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn two_threads_lose_and_repeat_nothing() {
        const N: u64 = 32 * 4096;
        let (mut tx, mut rx) = ring::<u64, 32>();
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
            if rx.pop(&mut out) {
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
