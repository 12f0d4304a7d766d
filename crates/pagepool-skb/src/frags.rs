//! The fragments of one packet, in order: at most 17, with their number and the sum of their bytes.

// UNSAFETY: entries up to the count are initialised.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;

use pagepool::MAX_FRAGS;

use crate::frag::SkbFrag;

pub(crate) struct Frags {
    count: u32,
    /// Bytes of data in all fragments.
    len: u32,
    entries: [MaybeUninit<SkbFrag>; MAX_FRAGS],
}

impl Frags {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { count: 0, len: 0, entries: [const { MaybeUninit::uninit() }; MAX_FRAGS] }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn as_slice(&self) -> &[SkbFrag] {
        // SAFETY: I1. The first `count` entries are initialised.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr().cast(), self.count()) }
    }

    fn as_mut_slice(&mut self) -> &mut [SkbFrag] {
        // SAFETY: I1. The first `count` entries are initialised, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.entries.as_mut_ptr().cast(), self.count()) }
    }

    /// Appends a fragment; `Err(frag)` beyond 17 fragments or 4 GiB of data.
    pub(crate) fn push(&mut self, frag: SkbFrag) -> Result<(), SkbFrag> {
        let Some(len) = self.len.checked_add(frag.len() as u32) else { return Err(frag) };
        let Some(room) = self.entries.get_mut(self.count as usize) else { return Err(frag) };
        room.write(frag);
        self.count += 1;
        self.len = len;
        Ok(())
    }

    /// Puts a fragment before all others; there is room.
    pub(crate) fn push_front(&mut self, frag: SkbFrag) {
        let refused = self.push(frag);
        debug_assert!(refused.is_ok(), "the caller made sure of the room");
        self.as_mut_slice().rotate_right(1);
    }

    /// Removes the last fragment.
    pub(crate) fn pop(&mut self) -> Option<SkbFrag> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: I1. The entry was initialised, and is not counted any more, so it is read out once.
        let frag = unsafe { self.entries[self.count()].assume_init_read() };
        self.len -= frag.len() as u32;
        Some(frag)
    }

    /// Moves the fragments from `at` on behind those of another packet, which has room.
    pub(crate) fn move_from(&mut self, at: usize, to: &mut Self) {
        self.as_mut_slice()[at..].reverse();
        while self.count() > at
            && let Some(frag) = self.pop()
        {
            let refused = to.push(frag);
            debug_assert!(refused.is_ok(), "the caller made sure of the room");
        }
    }

    /// Gives the fragments, in order.
    #[cfg(all(feature = "bytes", not(loom)))]
    pub(crate) fn into_ordered(mut self) -> impl Iterator<Item = SkbFrag> {
        self.as_mut_slice().reverse();
        std::iter::from_fn(move || self.pop())
    }

    /// Makes all fragments shared; they are counted as that already. No atomic operation.
    pub(crate) fn share(&mut self) {
        for frag in self.as_mut_slice() {
            // SAFETY: I1. It is read out once, because it is replaced below, and nothing between panics.
            let alone = unsafe { std::ptr::read(frag) };
            // SAFETY: I1. Only `Block::settle` comes here, after `note_readers` has counted each fragment.
            let shared = unsafe { alone.into_counted() };
            // SAFETY: the old value moved out, so nothing that has an owner is overwritten.
            unsafe { std::ptr::write(frag, shared) };
        }
    }

    /// Cuts bytes off the front. Consumed fragments return to their pools.
    pub(crate) fn pull(&mut self, less: usize) {
        let (mut left, mut consumed) = (less, 0);
        for frag in self.as_mut_slice() {
            if frag.len() > left {
                frag.pull(left);
                self.len -= left as u32;
                break;
            }
            left -= frag.len();
            consumed += 1;
        }
        self.as_mut_slice().rotate_left(consumed);
        (0..consumed).for_each(|_| drop(self.pop()));
    }

    /// Keeps the first `len` bytes; the rest returns to its pool.
    pub(crate) fn trim(&mut self, len: usize) {
        while self.len() > len {
            let more = self.len() - len;
            match self.as_mut_slice().last_mut() {
                Some(last) if last.len() > more => {
                    last.trim(last.len() - more);
                    self.len -= more as u32;
                }
                _ => drop(self.pop()),
            }
        }
    }

    /// Moves everything behind the first `at` bytes to a packet without fragments. A fragment across the
    /// bound is shared by both.
    pub(crate) fn split(&mut self, at: usize, to: &mut Self) {
        let (mut before, mut index) = (0, 0);
        while let Some(frag) = self.as_slice().get(index)
            && before + frag.len() <= at
        {
            (before, index) = (before + frag.len(), index + 1);
        }
        if before == at {
            return self.move_from(index, to);
        }
        self.move_from(index + 1, to);
        if let Some(straddling) = self.pop() {
            let (front, back) = straddling.split(at - before);
            let refused = self.push(front);
            debug_assert!(refused.is_ok(), "it was here");
            to.push_front(back);
        }
    }
}

impl Drop for Frags {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
