//! The four rings that an AF_XDP socket shares with the kernel, and the protocol of their indices.
//!
//! What   a [`Producer`] puts entries (fill, transmit), a [`Consumer`] takes them (receive, completion). Both
//!        ends of a ring use [`RingMemory`]: the kernel's mapping, or plain memory in a test.
//! Who    one thread at a time on our side; the kernel on the other, on any CPU.
//! Slots  are reserved by writing them, published by `submit`, and returned by `cancel`, so none is lost.
//! Trust  none: an impossible index is cut to the ring's size. The caller checks the contents of an entry.
//! Pairs  `Producer::submit` (Release) -> kernel `__xskq_cons_peek` (Acquire): the entries. kernel
//!        `__xskq_cons_release` (Release) -> `Producer::room` (Acquire): the slots may be written again.
//!        kernel `__xskq_prod_submit` (Release) -> `Consumer::peek` (Acquire): the entries, and the packets'
//!        bytes. `Consumer::release` (Release) -> kernel `xskq_prod_nb_free` (Acquire): the slots were read.
//!        (net/xdp/xsk_queue.h, v7.3.) The flag is a hint that the kernel sets when it goes to sleep. Every
//!        round reads it, not only the one after a submit, so the next look sees a flag that one missed.
//! Cost   per burst, at most one Acquire load and one Release store; per entry, plain accesses. The lines of
//!        a burst are prefetched together.

use std::sync::atomic::Ordering;

use crate::sys::prefetch;

/// One of the words at the head of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Entries ever put.
    Producer,
    /// Entries ever taken.
    Consumer,
    /// [`NEED_WAKEUP`].
    Flags,
}

pub(crate) trait RingMemory<const WORDS: usize> {
    type Entries<'a>: Entries<WORDS>
    where
        Self: 'a;

    fn load(&self, index: Index, order: Ordering) -> u32;
    fn store(&self, index: Index, value: u32, order: Ordering);
    fn entries(&self) -> Self::Entries<'_>;
}

/// The entries, as a value that a loop keeps in registers. Slots wrap around. Access is plain: the indices
/// say which end owns an entry.
pub(crate) trait Entries<const WORDS: usize>: Copy {
    fn get(self, slot: u32) -> [u64; WORDS];
    fn set(self, slot: u32, entry: [u64; WORDS]);
    /// Starts to fetch an entry's cache line.
    fn prefetch(self, slot: u32, to_write: bool);
}

/// Words in a cache line.
const LINE: usize = prefetch::LINE / size_of::<u64>();

/// Set while the kernel waits for a system call.
use libc::XDP_RING_NEED_WAKEUP as NEED_WAKEUP;

/// The end that puts entries of `WORDS` words.
#[derive(Debug)]
pub(crate) struct Producer<M, const WORDS: usize> {
    memory: M,
    size: u32,
    /// Entries ever written.
    next: u32,
    /// Entries ever published.
    submitted: u32,
    /// Entries that the other end is known to have taken.
    taken: u32,
}

impl<M: RingMemory<WORDS>, const WORDS: usize> Producer<M, WORDS> {
    /// Our end of an unused ring of `size` entries, a power of two.
    pub(crate) fn new(memory: M, size: u32) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { memory, size, next: 0, submitted: 0, taken: 0 }
    }

    /// Slots that may be written. Reads the other end's index only if fewer than `want` are known.
    #[inline(always)]
    pub(crate) fn room(&mut self, want: usize) -> usize {
        // Mostly enough: the kernel's cache line is not read.
        let known = self.known_room();
        if known >= want {
            return known;
        }
        self.taken = self.memory.load(Index::Consumer, Ordering::Acquire); // pairs with the kernel's release
        self.known_room()
    }

    /// None if the other end's index is beyond what was published.
    #[inline(always)]
    fn known_room(&self) -> usize {
        self.size.saturating_sub(self.next.wrapping_sub(self.taken)) as usize
    }

    /// Writes the next slot, for which there is room, unseen by the other end.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: [u64; WORDS]) {
        debug_assert!(self.known_room() > 0, "there is room");
        let mut slots = self.slots();
        slots.push(entry);
        slots.commit();
    }

    /// The next slots to write, as many as there is room for, until `commit`.
    #[inline(always)]
    pub(crate) fn slots(&mut self) -> Slots<'_, M::Entries<'_>, WORDS> {
        let room = self.known_room();
        Slots { entries: self.memory.entries(), room, next: self.next, committed: &mut self.next }
    }

    /// Prefetches the lines of `n` slots, `but` slots ahead, from the other end's cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, but: usize, n: usize) {
        fetch_lines(self.memory.entries(), self.next.wrapping_add(but as u32), n, true);
    }

    /// Takes back the last `n` slots since the last submit.
    #[inline]
    pub(crate) fn cancel(&mut self, n: usize) {
        debug_assert!(n as u32 <= self.next.wrapping_sub(self.submitted), "what is published stays");
        self.next = self.next.wrapping_sub(n as u32);
    }

    /// Publishes the written slots. Returns how many.
    #[inline(always)]
    pub(crate) fn submit(&mut self) -> usize {
        let written = self.next.wrapping_sub(self.submitted);
        // Storing an unchanged index would take its line from the kernel's CPU.
        if written > 0 {
            self.memory.store(Index::Producer, self.next, Ordering::Release); // pairs with the kernel's peek
            self.submitted = self.next;
        }
        written as usize
    }

    /// Entries that are not taken yet. Reads the other end's index.
    #[inline]
    pub(crate) fn level(&self) -> usize {
        let taken = self.memory.load(Index::Consumer, Ordering::Acquire); // pairs with the kernel's release
        self.submitted.wrapping_sub(taken).min(self.size) as usize
    }

    /// Whether the other end waits for a system call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // Relaxed: a hint, which the next round reads again.
        self.memory.load(Index::Flags, Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// Slots that are being written, with the index in a register.
pub(crate) struct Slots<'a, E, const WORDS: usize> {
    entries: E,
    room: usize,
    next: u32,
    committed: &'a mut u32,
}

impl<E: Entries<WORDS>, const WORDS: usize> Slots<'_, E, WORDS> {
    /// Writes the next slot, for which there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: [u64; WORDS]) {
        debug_assert!((self.next.wrapping_sub(*self.committed) as usize) < self.room, "there is room");
        self.entries.set(self.next, entry);
        self.next = self.next.wrapping_add(1);
    }

    /// Takes back the last `n` slots that were pushed here.
    #[inline(always)]
    pub(crate) fn cancel(&mut self, n: usize) {
        debug_assert!(n as u32 <= self.next.wrapping_sub(*self.committed), "what was committed stays");
        self.next = self.next.wrapping_sub(n as u32);
    }

    /// Notes the slots as written, unseen by the other end.
    #[inline(always)]
    pub(crate) fn commit(self) {
        *self.committed = self.next;
    }
}

/// The end that takes entries of `WORDS` words.
#[derive(Debug)]
pub(crate) struct Consumer<M, const WORDS: usize> {
    memory: M,
    size: u32,
    /// Entries ever read.
    next: u32,
    /// Entries ever returned.
    released: u32,
    /// Entries that the other end is known to have put.
    put: u32,
}

impl<M: RingMemory<WORDS>, const WORDS: usize> Consumer<M, WORDS> {
    /// Our end of an unused ring of `size` entries, a power of two.
    pub(crate) fn new(memory: M, size: u32) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { memory, size, next: 0, released: 0, put: 0 }
    }

    /// Entries that may be read, at most `want`. Reads the other end's index only if fewer are known.
    #[inline(always)]
    pub(crate) fn peek(&mut self, want: usize) -> usize {
        let known = self.known();
        if known >= want {
            return want;
        }
        // One load serves for all that the kernel has put so far.
        self.put = self.memory.load(Index::Producer, Ordering::Acquire); // pairs with the kernel's submit
        self.known().min(want)
    }

    #[inline(always)]
    fn known(&self) -> usize {
        self.put.wrapping_sub(self.next).min(self.size) as usize
    }

    /// Prefetches the lines of the next `n` entries from the other end's cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, n: usize) {
        fetch_lines(self.memory.entries(), self.next, n, false);
    }

    /// Consumes the next `n` entries, which are there, and reads them by index. Their slots stay until
    /// `release`. The other end can write that memory: two reads of an entry may differ. Each is consumed
    /// once, even if the reader panics.
    #[inline(always)]
    pub(crate) fn read(&mut self, n: usize) -> impl Fn(usize) -> [u64; WORDS] + Copy {
        debug_assert!(self.known() >= n, "they were looked for");
        let first = self.next;
        // Before the reads: a reader that panics has consumed them.
        self.next = first.wrapping_add(n as u32);
        Self::from(self.memory.entries(), first)
    }

    /// Reads the next entries by index without consuming them.
    #[inline]
    pub(crate) fn look(&self) -> impl Fn(usize) -> [u64; WORDS] + Copy {
        Self::from(self.memory.entries(), self.next)
    }

    #[inline(always)]
    fn from(entries: M::Entries<'_>, first: u32) -> impl Fn(usize) -> [u64; WORDS] + Copy {
        move |at| entries.get(first.wrapping_add(at as u32))
    }

    /// Returns the slots that were read.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.next != self.released {
            // Release pairs with the kernel's xskq_prod_nb_free(): it refills a slot only after our reads
            self.memory.store(Index::Consumer, self.next, Ordering::Release);
            self.released = self.next;
        }
    }

    /// The slot of the next entry, and the number of slots to the end of the memory.
    #[inline]
    pub(crate) fn first(&self) -> (u32, usize) {
        let slot = self.next & (self.size - 1);
        (slot, (self.size - slot) as usize)
    }

    /// Entries that are not read yet. Reads the other end's index.
    #[inline]
    pub(crate) fn level(&self) -> usize {
        let put = self.memory.load(Index::Producer, Ordering::Acquire); // pairs with the kernel's submit
        put.wrapping_sub(self.next).min(self.size) as usize
    }
}

#[inline(always)]
fn fetch_lines<const WORDS: usize>(entries: impl Entries<WORDS>, first: u32, n: usize, to_write: bool) {
    let a_line = (LINE / WORDS) as u32;
    // A burst that begins within a line touches one line more.
    let before = first % a_line;
    for at in (0..n as u32 + if n > 0 { before } else { 0 }).step_by(a_line as usize) {
        entries.prefetch(first.wrapping_sub(before).wrapping_add(at), to_write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[cfg(loom)]
    use loom::{sync::atomic::AtomicU32, thread};
    #[cfg(not(loom))]
    use std::{sync::atomic::AtomicU32, thread};

    /// The indices alone decide which end may access it.
    #[cfg(not(loom))]
    #[derive(Debug, Default)]
    struct Word(std::sync::atomic::AtomicU64);

    #[cfg(not(loom))]
    impl Word {
        fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn set(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// Loom detects that two threads access it at once.
    #[cfg(loom)]
    #[derive(Debug, Default)]
    struct Word(loom::cell::UnsafeCell<u64>);

    // SAFETY: loom fails the test at the first access that is not ordered with all others.
    #[cfg(loom)]
    #[expect(unsafe_code)]
    unsafe impl Sync for Word {}

    #[cfg(loom)]
    #[expect(unsafe_code)]
    impl Word {
        fn get(&self) -> u64 {
            // SAFETY: the pointer is valid, and loom checks that no thread writes.
            self.0.with(|word| unsafe { *word })
        }
        fn set(&self, value: u64) {
            // SAFETY: the pointer is valid, and loom checks that no other thread has access.
            self.0.with_mut(|word| unsafe { *word = value });
        }
    }

    /// A ring of which a test has both ends.
    #[derive(Debug)]
    struct Plain {
        indices: [AtomicU32; 3],
        words: Vec<Word>,
        /// The first words of the entries whose lines were prefetched.
        fetched: std::sync::Mutex<Vec<usize>>,
    }

    impl<const WORDS: usize> RingMemory<WORDS> for Arc<Plain> {
        type Entries<'a> = &'a Plain;

        fn load(&self, index: Index, order: Ordering) -> u32 {
            self.indices[index as usize].load(order)
        }
        fn store(&self, index: Index, value: u32, order: Ordering) {
            self.indices[index as usize].store(value, order);
        }
        fn entries(&self) -> &Plain {
            self
        }
    }

    impl Plain {
        fn entry(&self, slot: u32, words: usize) -> &[Word] {
            let first = (slot as usize * words) & (self.words.len() - 1);
            &self.words[first..first + words]
        }
    }

    impl<const WORDS: usize> Entries<WORDS> for &Plain {
        fn get(self, slot: u32) -> [u64; WORDS] {
            let entry = self.entry(slot, WORDS);
            std::array::from_fn(|at| entry[at].get())
        }
        fn set(self, slot: u32, entry: [u64; WORDS]) {
            self.entry(slot, WORDS).iter().zip(entry).for_each(|(word, value)| word.set(value));
        }
        fn prefetch(self, slot: u32, _: bool) {
            self.fetched.lock().unwrap().push((slot as usize * WORDS) & (self.words.len() - 1));
        }
    }

    fn take<M: RingMemory<WORDS>, const WORDS: usize>(
        from: &mut Consumer<M, WORDS>,
        n: usize,
    ) -> Vec<[u64; WORDS]> {
        from.prefetch(n);
        (0..n).map(from.read(n)).collect()
    }

    type Ends<const WORDS: usize> = (Producer<Arc<Plain>, WORDS>, Consumer<Arc<Plain>, WORDS>);

    /// Both ends of a ring whose indices begin at `start`.
    fn ring<const WORDS: usize>(size: u32, start: u32) -> (Ends<WORDS>, Arc<Plain>) {
        let memory = Arc::new(Plain {
            indices: [AtomicU32::new(start), AtomicU32::new(start), AtomicU32::new(0)],
            words: (0..size as usize * WORDS).map(|_| Word::default()).collect(),
            fetched: Default::default(),
        });
        let mut producer = Producer::new(memory.clone(), size);
        let mut consumer = Consumer::new(memory.clone(), size);
        (producer.next, producer.submitted, producer.taken) = (start, start, start);
        (consumer.next, consumer.released, consumer.put) = (start, start, start);
        ((producer, consumer), memory)
    }

    /// More entries than slots between two threads: each arrives once, in order, whole; singly or in bursts.
    fn passes_on(entries: u64, size: u32, bursts: bool) {
        let ((mut producer, mut consumer), _) = ring::<2>(size, u32::MAX - 1);
        let putting = thread::spawn(move || {
            let mut next = 0;
            while next < entries {
                let n = producer.room(1).min((entries - next) as usize);
                let these = (next..next + n as u64).map(|entry| [entry, !entry]);
                if bursts {
                    let mut slots = producer.slots();
                    these.for_each(|entry| slots.push(entry));
                    slots.commit();
                } else {
                    these.for_each(|entry| producer.push(entry));
                }
                next += n as u64;
                producer.submit();
                if n == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < entries {
            let n = consumer.peek(size as usize);
            let part = if bursts { n } else { 1 };
            let read: Vec<_> = (0..n).step_by(part.max(1)).flat_map(|_| take(&mut consumer, part)).collect();
            consumer.release();
            for entry in read {
                assert_eq!(entry, [expected, !expected]);
                expected += 1;
            }
            if n == 0 {
                thread::yield_now();
            }
        }
        putting.join().unwrap();
    }

    #[cfg(loom)]
    #[test]
    fn entries_come_once_in_order_in_every_interleaving() {
        loom::model(|| passes_on(3, 2, false));
        loom::model(|| passes_on(3, 2, true));
    }

    #[cfg(not(loom))]
    #[test]
    fn entries_come_once_in_order() {
        for bursts in [false, true] {
            passes_on(if cfg!(miri) { 50 } else { 20_000 }, 8, bursts);
        }
    }

    #[cfg(not(loom))]
    #[test]
    fn submit_publishes_a_slot_and_release_frees_it() {
        let ((mut producer, mut consumer), _) = ring::<1>(4, u32::MAX - 2);
        assert_eq!(producer.room(9), 4);
        (0..4).for_each(|n| producer.push([n]));
        assert_eq!((consumer.peek(9), producer.level()), (0, 0), "nothing is published");
        assert_eq!((producer.submit(), producer.submit()), (4, 0));
        assert_eq!((consumer.peek(9), consumer.peek(3), producer.room(1)), (4, 3, 0));
        assert_eq!(take(&mut consumer, 2), [[0], [1]]);
        assert_eq!((producer.room(1), consumer.level(), producer.level()), (0, 2, 4), "not given back yet");
        consumer.release();
        assert_eq!((producer.room(1), consumer.level(), producer.level()), (2, 2, 2));
    }

    #[cfg(not(loom))]
    #[test]
    fn slots_that_were_reserved_and_not_sent_are_given_back() {
        let ((mut producer, mut consumer), _) = ring::<1>(4, 0);
        for round in 0..100 {
            assert_eq!(producer.room(3), 4, "round {round}: nothing is lost");
            (0..3).for_each(|n| producer.push([n]));
            producer.cancel(2);
            producer.push([7 + round]);
            assert_eq!(producer.submit(), 2);
            assert_eq!((consumer.peek(4), take(&mut consumer, 2)), (2, vec![[0], [7 + round]]));
            consumer.release();
            producer.room(4);
        }
    }

    #[cfg(not(loom))]
    #[test]
    fn entries_that_were_read_are_released_even_after_a_panic() {
        let ((mut producer, mut consumer), _) = ring::<1>(4, 0);
        (0..4).for_each(|n| producer.push([n]));
        producer.submit();
        assert_eq!(consumer.peek(2), 2);
        let reader = std::panic::AssertUnwindSafe(|| {
            let read = consumer.read(2);
            panic!("after {:?}", read(0));
        });
        assert!(std::panic::catch_unwind(reader).is_err());
        assert_eq!((consumer.peek(4), take(&mut consumer, 2)), (2, vec![[2], [3]]));
    }

    /// The lines that are prefetched for `n` entries from `first`, in a ring of 32.
    #[cfg(not(loom))]
    fn lines<const WORDS: usize>(first: u32, n: usize) -> Vec<usize> {
        let (_, memory) = ring::<WORDS>(32, 0);
        fetch_lines::<WORDS>(&*memory, first, n, false);
        let words = std::mem::take(&mut *memory.fetched.lock().unwrap());
        words.into_iter().map(|word| word / LINE).collect()
    }

    #[cfg(not(loom))]
    #[test]
    fn all_lines_of_a_burst_are_fetched_wherever_it_begins() {
        assert_eq!((lines::<1>(0, 8), lines::<1>(7, 1), lines::<1>(7, 2)), (vec![0], vec![0], vec![0, 1]));
        assert_eq!(
            (lines::<2>(3, 6), lines::<2>(u32::MAX, 2), lines::<2>(3, 0)),
            (vec![0, 1, 2], vec![7, 0], vec![])
        );
    }

    #[cfg(not(loom))]
    #[test]
    fn indices_that_cannot_be_give_nothing_beyond_the_ring() {
        let ((mut producer, mut consumer), memory) = ring::<1>(4, 0);
        RingMemory::<1>::store(&memory, Index::Consumer, 77, Ordering::Relaxed);
        assert_eq!(producer.room(5), 0, "more taken than was put");
        RingMemory::<1>::store(&memory, Index::Producer, 99, Ordering::Relaxed);
        assert_eq!((consumer.peek(64), consumer.level()), (4, 4), "more put than there are slots");
        assert!(!producer.needs_wakeup());
        RingMemory::<1>::store(&memory, Index::Flags, NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }
}
