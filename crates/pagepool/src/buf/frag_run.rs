//! Consecutive fragments of one page as one value: the cheapest way to move a burst of fragments.
//!
//! What   the first fragment and the number left. Taking one is an addition; returning all is one count in
//!        the page's record, or one message.
//! Who    any thread, one at a time. The drop returns the fragments that are left like dropped buffers.
//! I1     it is the only owner of its fragments; each that is taken out is owned by its handle.

// UNSAFETY: the handle of the first fragment is read out once.
#![expect(unsafe_code)]

use std::iter::FusedIterator;
use std::mem::ManuallyDrop;

use crate::buf::batch::Batch;
use crate::buf::bulk::{ReturnPath, put_frags};
use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;

/// Up to [`FragRun::MAX`] consecutive fragments of one page, of equal size. An iterator of [`PageBuf`]; its
/// drop returns the rest. [`Bound::alloc_frag_run`](crate::Bound::alloc_frag_run) creates one.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { order: 5, ..Default::default() }, arena)?.bind();
/// let mut run = pool.alloc_frag_run(2048, 32).unwrap();
/// let (first, second) = (run.next().unwrap(), run.next().unwrap());
/// assert_eq!((first.offset(), second.offset(), run.len()), (0, 2048, 30));
/// drop((first, run, second));
/// assert_eq!(pool.inflight().out, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a run that is dropped at once was allocated for nothing"]
pub struct FragRun {
    /// The first fragment left, if `left` is not 0.
    first: ManuallyDrop<PageBuf>,
    left: u32,
    step: u32,
}

impl FragRun {
    /// Most fragments in a run.
    pub const MAX: usize = Batch::MAX;

    /// `left` fragments (at least one), which the caller gives up: `first`, and each next one `step` bytes
    /// later.
    #[inline(always)]
    pub(crate) fn new(first: PageBuf, left: usize, step: usize) -> Self {
        Self { first: ManuallyDrop::new(first), left: left as u32, step: step as u32 }
    }

    /// The first fragment that is left.
    #[inline]
    pub fn first(&self) -> Option<&PageBuf> {
        (self.left > 0).then_some(&*self.first)
    }

    /// Bytes from the start of one fragment to the start of the next.
    #[inline]
    pub fn step(&self) -> usize {
        self.step as usize
    }

    /// Gives the rest up to the caller, and returns their number.
    #[inline(always)]
    pub(crate) fn give_up(mut self) -> usize {
        std::mem::take(&mut self.left) as usize
    }
}

impl Iterator for FragRun {
    type Item = PageBuf;

    #[inline]
    fn next(&mut self) -> Option<PageBuf> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: I1. It is one of those left; `first` becomes the next one, or is meaningless.
        let taken = unsafe { ManuallyDrop::take(&mut self.first) };
        let (pool, offset, len) = (taken.pool, taken.offset() + self.step as usize, taken.len());
        let head = taken.bits.head(pool.geometry.head_mask);
        self.first = ManuallyDrop::new(PageBuf { pool, bits: HandleBits::frag(head, offset, len) });
        Some(taken)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for FragRun {}
impl FusedIterator for FragRun {}

impl Drop for FragRun {
    #[inline]
    fn drop(&mut self) {
        if self.left > 0 {
            self.put();
        }
    }
}

impl FragRun {
    #[inline(never)]
    fn put(&mut self) {
        let pool = self.first.pool;
        let pages = [self.first.bits.head(pool.geometry.head_mask).0; Self::MAX];
        // Emptied before a callback runs, which may panic.
        let left = std::mem::take(&mut self.left) as usize;
        put_frags(ReturnPath::Dropped, pool, &pages[..left]);
    }
}
