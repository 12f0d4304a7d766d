//! A buffer becomes two, which return independently.
//!
//! What   a split makes the page a page in fragments: both parts are fragment handles, and each return is one
//!        message or one count (frag_return.rs). Nothing is copied or moved.
//! Who    any thread that has a buffer; two threads may split two parts of one page at once.
//! Count  a page's parts out are `frags` + `parts` in its record. The owner writes `frags`: its cuts and
//!        splits add, each counted return subtracts. Other threads add their splits to `parts`: 2 for a whole
//!        page, which `frags` did not include, 1 for a fragment. For a whole page both are 0: the counts
//!        begin with the first split, on any thread.
//! I5     the counting thread judges after each return, and reads `parts` only if `frags` is not above 0: a
//!        page without remote splits costs nothing. Each split precedes the returns of both its parts, and
//!        their messages are received with Acquire. A thread that counts a return therefore sees the split
//!        that created the part, and all splits before that one. If the sum is 0, every part it knows of has
//!        returned, and none was split further: nothing is out. At the last return every split is known, and
//!        the sum is 0. The judge then sets both words to 0 by plain stores, because no thread has a part to
//!        split. After the pool's end the holder of the return lock counts and judges, while other threads
//!        still split parts.
//! Pairs  none of its own: `parts` is Relaxed; the messages, or the transfer of a part, order it.
//! Cost   on the owner's thread a load and a store in the record; elsewhere one atomic addition. The split of
//!        a whole page also counts, for observers, a page in fragments.

use std::fmt;

use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;
use crate::buf::raw_buf::LINE;
use crate::core::pool_core::PoolPtr;
use crate::mem::page::PageIdx;
use crate::sys::sync::Ordering;

/// Why a buffer was not split. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitError {
    /// Where it was to be split, in bytes from its start.
    pub at: usize,
    /// Length of the buffer in bytes.
    pub len: usize,
    /// Parts begin at multiples of this in their page: 1, or 2 in pages of 4 MiB, the largest.
    pub step: usize,
}

impl SplitError {
    /// Checks that both parts have a byte, and that a handle can encode the second's start.
    pub(crate) fn check(at: usize, len: usize, step: usize) -> Result<(), Self> {
        let fits = at != 0 && at < len && at.is_multiple_of(step);
        if fits { Ok(()) } else { Err(Self { at, len, step }) }
    }
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, len, step } = *self;
        if len <= step {
            return write!(f, "a buffer of {len} bytes cannot be split at {at}: the minimum is {}", step + 1);
        }
        let most = len - 1;
        if step > 1 {
            write!(f, "in a page of 4 MiB, parts begin at multiples of {step}: ")?;
        }
        write!(f, "a buffer of {len} bytes cannot be split at {at}")?;
        match at {
            _ if (1..len).contains(&at) => f.write_str("; split it a byte earlier or later"),
            _ => write!(f, ": each part needs a byte; split at 1 to {most}"),
        }
    }
}

impl std::error::Error for SplitError {}

impl PageBuf {
    /// Splits the buffer at byte `at`: `self` keeps the bytes before, the result has the rest. Like
    /// `BytesMut::split_off`.
    ///
    /// Copies nothing. Each part returns by itself, on any thread; the page is free when its last part has
    /// returned.
    ///
    /// Both parts are fragments, even of a whole page: `at` counts from its first byte (headroom included),
    /// [`packet_offset`](Self::packet_offset) becomes 0, and the rest has no headroom. Read the packet's
    /// offset before the split. A part can be split again. `at` need not be aligned, but parts that share a
    /// cache line have no [raw](Self::into_raw) form.
    ///
    /// Any thread; no atomic operation on the owner's, elsewhere one, or two for a whole page.
    ///
    /// # Errors
    /// If `at` is not in 1 to `len() - 1`, or is odd in a page of 4 MiB. Nothing has changed.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena)?.bind();
    /// let mut header = pool.alloc_page().unwrap();
    /// let begins = header.packet_offset();
    /// let payload = header.split_off(begins + 54).unwrap();
    /// assert_eq!((header.len(), payload.len()), (begins + 54, 4096 - begins - 54));
    ///
    /// let reader = std::thread::spawn(move || payload.bytes().unwrap()[0]);
    /// header.bytes_mut().unwrap()[begins..].fill(7);
    /// drop(header);
    /// reader.join().unwrap(); // which dropped the payload
    ///
    /// let mut byte = pool.alloc_frag(1).unwrap();
    /// assert_eq!(byte.split_off(1).unwrap_err().len, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn split_off(&mut self, at: usize) -> Result<PageBuf, SplitError> {
        let len = self.len();
        // Buffers begin at multiples of the step, so this checks the offset in the page, too.
        let step = if self.pool.geometry.odd_bit() == 0 { 2 } else { 1 };
        SplitError::check(at, len, step)?;
        let (pool, page, offset) = (self.pool, self.page(), self.offset());
        count_parts(pool, page, self.is_frag());
        if !(offset + at).is_multiple_of(LINE) && !pool.split_lines.load(Ordering::Relaxed) {
            pool.split_lines.store(true, Ordering::Relaxed);
        }
        let geometry = &pool.geometry;
        self.bits = HandleBits::part(geometry.base_page, page, offset, at, geometry.odd_bit());
        Ok(PageBuf::part(pool, page, offset + at, len - at))
    }

    /// Splits the buffer by value: the bytes before `at`, and the rest. The error of
    /// [`split_off`](Self::split_off) comes with the buffer. Use it to cut packets off a receive buffer one
    /// by one.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let (mut rest, mut packets) = (pool.alloc_page().unwrap(), Vec::new());
    /// for len in [60, 1514, 590] {
    ///     let (packet, behind) = rest.split_at(len).unwrap();
    ///     packets.push(packet);
    ///     rest = behind;
    /// }
    /// drop((packets, rest));
    /// assert_eq!(pool.stats().recycle_cached, 1, "one page, in four parts");
    ///
    /// let (buffer, refused) = pool.alloc_page().unwrap().split_at(5000).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "a buffer of 4096 bytes cannot be split at 5000: each part needs a byte; split at 1 to 4095"
    /// );
    /// # drop(buffer);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn split_at(mut self, at: usize) -> Result<(PageBuf, PageBuf), (PageBuf, SplitError)> {
        match self.split_off(at) {
            Ok(rest) => Ok((self, rest)),
            Err(refused) => Err((self, refused)),
        }
    }
}

/// Counts one more part of a page, of which the caller has a part or all.
#[inline]
fn count_parts(pool: PoolPtr, page: PageIdx, in_frags: bool) {
    let (meta, more) = (pool.page_meta(page), if in_frags { 1 } else { 2 });
    if pool.owner_here().is_some() {
        // I2, I5: only this thread writes the word.
        meta.frags.store(meta.frags.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        if !in_frags {
            pool.own.in_frags.add(1);
        }
        if pool.needs_work_on_return {
            pool.note_more_out(page, more);
        }
    } else {
        meta.parts.fetch_add(more, Ordering::Relaxed);
        if !in_frags {
            pool.split_elsewhere.fetch_add(1, Ordering::Relaxed);
        }
        pool.holder_record(page).inspect(|record| record.frags_out(more));
    }
}
