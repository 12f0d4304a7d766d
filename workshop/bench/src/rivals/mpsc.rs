//! The rival of the lanes: one lock-free queue for all returning threads, over pages of an arena.
//!
//! What   Page numbers in crossbeam's `ArrayQueue`. The owner refills a stack from it, 64 at a time.
//! Who    One owner allocates; any thread may drop a buffer.
//! Absent on purpose, the pool: no end while buffers are out, no check of the dropping thread, no fragments,
//!        syncs or wake-up, and no counter per buffer.
//! Cost   Dropping: one compare-and-swap on the queue's tail, one store. Taking: one compare-and-swap on its
//!        head, because an `ArrayQueue` allows many consumers.

use std::iter;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use pagepool::{PageIdx, Provider};

use crate::measure::counted::{Counted, Moves, Rule};

/// As a pool does.
const REFILL: usize = 64;

/// Every page returns through the queue, where all pages start; none comes from the arena.
pub const RULES: &[Rule] = &[
    Rule(&["allocated"], Moves::Each),
    Rule(&["came_home"], Moves::Each),
    Rule(&["refills"], Moves::Share(1, REFILL as u64)),
];

pub struct Mpsc {
    /// Only for this queue: its pages are freed with it.
    _arena: Arc<dyn Provider>,
    /// Has room for every page.
    queue: ArrayQueue<u32>,
}

pub struct Owner<'a> {
    queue: &'a ArrayQueue<u32>,
    stack: Vec<u32>,
    /// Pages taken out of the queue so far.
    taken: usize,
    refills: u64,
}

/// Dropping it returns the page.
pub struct QueuedPage<'a> {
    queue: &'a ArrayQueue<u32>,
    page: u32,
}

const _: () = assert!(size_of::<QueuedPage>() == 16, "of the size of the pool's handle");

impl Mpsc {
    /// Takes pages of the arena into the queue.
    pub fn new(arena: Arc<dyn Provider>, pages: usize) -> Result<Self, String> {
        let mut numbers = vec![PageIdx(0); pages];
        let got = arena.reserve(0, None, &mut numbers);
        if got < pages {
            return Err(format!("the arena gave {got} pages of {pages}"));
        }
        let queue = ArrayQueue::new(pages);
        numbers.iter().for_each(|page| put(&queue, page.0));
        Ok(Self { _arena: arena, queue })
    }

    /// Pages of an earlier owner are in the queue again.
    pub fn owner(&mut self) -> Owner<'_> {
        Owner { queue: &self.queue, stack: Vec::with_capacity(REFILL), taken: 0, refills: 0 }
    }
}

#[inline(always)]
fn put(queue: &ArrayQueue<u32>, page: u32) {
    let refused = queue.push(page).is_err();
    debug_assert!(!refused, "the queue has room for every page, and a page is in it once");
}

impl<'a> Owner<'a> {
    /// `None` if all are out.
    #[inline(always)]
    pub fn alloc(&mut self) -> Option<QueuedPage<'a>> {
        let page = self.stack.pop().or_else(|| self.refill())?;
        Some(QueuedPage { queue: self.queue, page })
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<u32> {
        self.stack.extend(iter::from_fn(|| self.queue.pop()).take(REFILL));
        self.taken += self.stack.len();
        self.refills += 1;
        self.stack.pop()
    }

    /// Exact when no return is in progress. Costs the fast path nothing: returned pages are those taken and
    /// those waiting.
    pub fn counted(&self) -> Counted {
        let allocated = self.taken - self.stack.len();
        let came_home = self.taken + self.queue.len();
        Counted::from_fields([
            ("allocated", allocated as u64),
            ("came_home", came_home as u64),
            ("refills", self.refills),
        ])
    }
}

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.stack.drain(..).for_each(|page| put(self.queue, page));
    }
}

impl Drop for QueuedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        put(self.queue, self.page);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;
    use crate::measure::counted::check;
    use crate::workloads::pools;

    const PAGES: usize = 200;

    fn mpsc() -> Mpsc {
        Mpsc::new(pools::arena(1024).expect("4 MiB of addresses"), PAGES).expect("1024 pages")
    }

    #[test]
    fn gives_every_page_once_and_then_none() {
        let mut mpsc = mpsc();
        let mut owner = mpsc.owner();
        let held: Vec<QueuedPage> = iter::from_fn(|| owner.alloc()).collect();
        assert_eq!(held.iter().map(|buffer| buffer.page).collect::<BTreeSet<_>>().len(), PAGES);
        drop(held);
        let again: Vec<QueuedPage> = iter::from_fn(|| owner.alloc()).collect();
        assert_eq!(again.len(), PAGES);
    }

    #[test]
    fn refuses_more_pages_than_there_are() {
        let arena = pools::arena(1024).expect("4 MiB of addresses");
        let why = Mpsc::new(arena, 1025).err().expect("one too many");
        assert!(why.contains("1024 pages of 1025"), "{why}");
    }

    #[test]
    fn many_threads_return_every_page() {
        let mut mpsc = mpsc();
        let mut owner = mpsc.owner();
        let before = owner.counted();
        for _ in 0..64 {
            let mut held: Vec<QueuedPage> = iter::from_fn(|| owner.alloc()).take(128).collect();
            let half = held.split_off(64);
            thread::scope(|scope| [held, half].map(|held| _ = scope.spawn(move || drop(held))));
        }
        assert_eq!(check(&owner.counted().since(&before), RULES, 64 * 128), Ok(()));
    }
}
