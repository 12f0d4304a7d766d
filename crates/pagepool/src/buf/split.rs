//! A buffer becomes two, which return independently.
//!
//! What   the page of a buffer that is split is a page in fragments from then on: both parts are handles of
//!        fragments, and each return is one message or one count, as that of a fragment which the owner cut
//!        (frag_return.rs). Splitting copies and moves nothing.
//! Who    any thread that has a buffer; two threads may split two parts of one page at the same time.
//! Count  a page's parts out are `frags` + `parts` in its record. The owner writes `frags`: cutting and
//!        splitting there add to it, a return that is counted subtracts. Other threads add to `parts` where
//!        they split: 2 for a whole page, of which `frags` knew nothing, 1 for a fragment. A whole page
//!        leaves both 0, so the counts begin with the first split, on whichever thread.
//! I5     the counting thread judges after each return, and looks at `parts` only where `frags` is not above
//!        0, so a page that is not split elsewhere costs nothing. Each split comes before the returns of both
//!        its parts, and their messages are received with Acquire; so whoever counts a return sees the split
//!        that its part came from, the split before that, and so on. Therefore a sum of 0 means that every
//!        part it knows of is home, none of which was split further: nothing is out. And at the last return
//!        every split is known, so that sum is 0. The judge then sets both words to 0 with plain stores:
//!        nobody has a part to split. After the end of the pool the holder of the return lock counts and
//!        judges in the same words, while parts are still split elsewhere.
//! Pairs  none of its own: `parts` is Relaxed, ordered by the messages, or by whatever hands a part on.
//! Cost   on the owner's thread a load and a store in the record; elsewhere one atomic addition. Of a whole
//!        page each also counts, for observers, that a page is in fragments.

use std::fmt;

use crate::buf::handle_bits::HandleBits;
use crate::buf::page_buf::PageBuf;
use crate::buf::raw_buf::LINE;
use crate::mem::page::PageIdx;
use crate::returns::pool_core::PoolPtr;
use crate::sys::sync::Ordering;

/// Why a buffer was not split. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitError {
    /// Where it was to be split, in bytes from its beginning.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// What a part begins at a multiple of, in its page: 1, or 2 in pages of 4 MiB, the largest.
    pub step: usize,
}

impl SplitError {
    /// Both parts have a byte at least, and a handle can say where the second begins.
    pub(crate) fn check(at: usize, len: usize, step: usize) -> Result<(), Self> {
        let fits = at != 0 && at < len && at.is_multiple_of(step);
        if fits { Ok(()) } else { Err(Self { at, len, step }) }
    }
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, len, step } = *self;
        if len <= step {
            return write!(f, "a buffer of {len} bytes cannot be split (at {at}): it needs {}", step + 1);
        }
        let most = len - 1;
        if step > 1 {
            write!(f, "in a page of 4 MiB parts begin at multiples of {step}: ")?;
        }
        write!(f, "a buffer of {len} bytes cannot be split at {at}")?;
        match at {
            _ if (1..len).contains(&at) => f.write_str(", but a byte earlier or later"),
            _ => write!(f, ": each part needs a byte, so split at 1 to {most}"),
        }
    }
}

impl std::error::Error for SplitError {}

impl PageBuf {
    /// Splits the buffer at byte `at`: it keeps the bytes before, and the result has the rest. Each is owned
    /// and returns by itself, on any thread; the page is home when the last part is, and counts as a page in
    /// fragments does. Nothing is copied. As `BytesMut::split_off`.
    ///
    /// Both are fragments from then on, also of a whole page: `at` counts from its first byte, headroom
    /// included, [`packet_offset`](Self::packet_offset) is 0, and the rest has no headroom. So ask for the
    /// packet's offset before. A part may be split again. `at` need not be aligned, but parts that share a
    /// cache line have no [raw](Self::into_raw) form.
    ///
    /// Any thread; no atomic operation on the owner's, one elsewhere, two for a whole page. Refused, with
    /// nothing changed, unless `at` is 1 to `len() - 1`, in pages of 4 MiB (order 10) also if it is odd.
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
        // Buffers begin at multiples of the step, so the place within this one is one, too.
        let step = if self.pool.geometry.odd_bit() == 0 { 2 } else { 1 };
        SplitError::check(at, len, step)?;
        let (pool, page, offset) = (self.pool, self.page(), self.offset());
        count_parts(pool, page, self.is_frag());
        if !(offset + at).is_multiple_of(LINE) && !pool.split_lines.load(Ordering::Relaxed) {
            pool.split_lines.store(true, Ordering::Relaxed);
        }
        self.bits = HandleBits::part(page, offset, at, pool.geometry.odd_bit());
        Ok(PageBuf::part(pool, page, offset + at, len - at))
    }

    /// As [`split_off`](Self::split_off), by value: the bytes before `at`, and the rest. Gives the buffer
    /// back where it refuses. For several packets in one receive buffer, cut off one after the other.
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
    ///     "a buffer of 4096 bytes cannot be split at 5000: each part needs a byte, so split at 1 to 4095"
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

/// Counts one more part of a page, of which the caller has a part, or all.
#[inline]
fn count_parts(pool: PoolPtr, page: PageIdx, in_frags: bool) {
    let (meta, more) = (pool.page_meta(page), if in_frags { 1 } else { 2 });
    if pool.owner_here().is_some() {
        // I2, I5: this thread alone writes the word.
        meta.frags.store(meta.frags.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        if !in_frags {
            pool.own.in_frags.add(1);
        }
        if pool.careful {
            pool.note_more_out(page, more);
        }
    } else {
        meta.parts.fetch_add(more, Ordering::Relaxed);
        if !in_frags {
            pool.split_elsewhere.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(holders) = &pool.holders {
            holders.frags_out(page, more);
        }
    }
}
