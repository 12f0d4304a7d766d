//! A bare ring between two threads: what hands buffers over in the two-core workloads, and their floor.
//!
//! What   bounded FIFO of 1024 elements, one producer and one consumer, each with a cached copy of the other's index,
//!        moved in whole bursts.
//! Who    [`Sender`] is one thread's, [`Receiver`] another's; both are `Send`, neither can be cloned.
//! Cost   per burst: one Release store, and one Acquire load when the cached index does not suffice. No atomic
//!        read-modify-write.
//! Pairs  push(head, Release) -> pop(head, Acquire); pop(tail, Release) -> push(tail, Acquire).

// UNSAFETY: slots are written and read through `UnsafeCell` under the head and tail protocol above.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots of a ring.
pub const CAPACITY: usize = 1024;

/// A pair of lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

struct Ring<T> {
    /// Elements ever pushed; written by the producer.
    head: Padded<AtomicUsize>,
    /// Elements ever taken; written by the consumer.
    tail: Padded<AtomicUsize>,
    slots: Padded<[UnsafeCell<MaybeUninit<T>>; CAPACITY]>,
}

// SAFETY: the producer alone writes slots of [tail + CAPACITY - free, ...) before it publishes them, and the consumer
// alone reads those below the published head; an element passes from one thread to the other, hence `T: Send`.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The producer's end.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    head: usize,
    tail_seen: usize,
}

/// The consumer's end.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    head_seen: usize,
}

/// An empty ring.
pub fn ring<T: Send>() -> (Sender<T>, Receiver<T>) {
    let slots = Padded([const { UnsafeCell::new(MaybeUninit::uninit()) }; CAPACITY]);
    let ring = Arc::new(Ring { head: Padded(AtomicUsize::new(0)), tail: Padded(AtomicUsize::new(0)), slots });
    (Sender { ring: ring.clone(), head: 0, tail_seen: 0 }, Receiver { ring, tail: 0, head_seen: 0 })
}

impl<T> Ring<T> {
    /// The slots from `at` on, up to `n` of them: those before the wrap, and how many come after it.
    #[inline(always)]
    fn span(&self, at: usize, n: usize) -> (*mut T, usize, *mut T, usize) {
        let base = self.slots.0.as_ptr().cast_mut().cast::<T>();
        let start = at % CAPACITY;
        let first = n.min(CAPACITY - start);
        (base.wrapping_add(start), first, base, n - first)
    }
}

impl<T: Send> Sender<T> {
    /// Moves all of `burst` into the ring and says yes, or leaves it alone and says no.
    #[inline(always)]
    pub fn push(&mut self, burst: &mut Vec<T>) -> bool {
        let n = burst.len();
        if CAPACITY - (self.head - self.tail_seen) < n {
            self.tail_seen = self.ring.tail.0.load(Ordering::Acquire); // pairs with pop()
            if CAPACITY - (self.head - self.tail_seen) < n {
                return false;
            }
        }
        let (first, before, second, after) = self.ring.span(self.head, n);
        // SAFETY: `before` free slots start at `first`, which only the producer touches until they are published.
        unsafe { first.copy_from_nonoverlapping(burst.as_ptr(), before) };
        let rest = burst.as_ptr().wrapping_add(before);
        // SAFETY: as above, for the `after` slots at the ring's start.
        unsafe { second.copy_from_nonoverlapping(rest, after) };
        // SAFETY: the elements have moved into the ring; the vector must not drop them.
        unsafe { burst.set_len(0) };
        self.head += n;
        self.ring.head.0.store(self.head, Ordering::Release); // pairs with pop()
        true
    }
}

impl<T: Send> Receiver<T> {
    /// Moves exactly `n` elements into the spare capacity of `burst` and says yes, or moves none and says no. Never
    /// grows the vector: without the room it says no.
    #[inline(always)]
    pub fn pop(&mut self, burst: &mut Vec<T>, n: usize) -> bool {
        if self.head_seen - self.tail < n {
            self.head_seen = self.ring.head.0.load(Ordering::Acquire); // pairs with push()
            if self.head_seen - self.tail < n {
                return false;
            }
        }
        let len = burst.len();
        if burst.capacity() - len < n {
            return false;
        }
        let (first, before, second, after) = self.ring.span(self.tail, n);
        let out = burst.as_mut_ptr().wrapping_add(len);
        // SAFETY: `before` published slots start at `first`; the vector has room for `n` more elements.
        unsafe { out.copy_from_nonoverlapping(first, before) };
        let out = out.wrapping_add(before);
        // SAFETY: as above, for the `after` slots at the ring's start.
        unsafe { out.copy_from_nonoverlapping(second, after) };
        // SAFETY: the `n` elements after `len` were initialised just now.
        unsafe { burst.set_len(len + n) };
        self.tail += n;
        self.ring.tail.0.store(self.tail, Ordering::Release); // pairs with push()
        true
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (head, tail) = (*self.head.0.get_mut(), *self.tail.0.get_mut());
        for at in tail..head {
            let slot = self.slots.0[at % CAPACITY].get_mut();
            // SAFETY: slots from tail to head hold elements that nobody took, and both ends are gone.
            unsafe { slot.assume_init_drop() };
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn drops_what_nobody_took() {
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
