//! Reads packets: as slices, for example for vectored sends, and as copies.

use std::ops::Range;

use crate::block::Block;
use crate::error::SkbError;
use crate::frag::SkbFrag;
use crate::sk_buff::SkBuff;

impl SkBuff {
    /// The packet's bytes in place, in order: the head if it has data, then each fragment; at most 18 slices.
    /// `None` if the CPU cannot read all. Linux: `skb_to_sgvec`.
    ///
    /// ```
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// use std::io::{IoSlice, Write};
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head ").unwrap();
    /// packet.add_frag(std::sync::Arc::<[u8]>::from(*b"and data"), 0, 8).unwrap();
    /// let slices: Vec<IoSlice> = packet.chunks().unwrap().map(IoSlice::new).collect();
    /// let mut sent = Vec::new();
    /// sent.write_vectored(&slices).unwrap();
    /// assert_eq!((slices.len(), &sent[..]), (2, &b"head and data"[..]));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_to_sgvec")]
    pub fn chunks(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let head = Some(self.data()).filter(|data| !data.is_empty());
        self.readable().then(|| head.into_iter().chain(self.frags().iter().map(SkbFrag::data)))
    }

    /// Fills `into` with the bytes from `offset` on. Linux: `skb_copy_bits`.
    ///
    /// ```
    /// # use pagepool_skb::{SkBuff, SkbCache, SkbError};
    /// # let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head ").unwrap();
    /// packet.add_frag(std::sync::Arc::<[u8]>::from(*b"and data"), 0, 8).unwrap();
    /// let mut word = [0; 6];
    /// packet.copy_bits(3, &mut word).unwrap();
    /// assert_eq!(&word, b"d and ");
    /// assert_eq!(packet.copy_bits(8, &mut word), Err(SkbError::TooShort));
    /// assert!(packet.chunks().unwrap().eq([&b"head "[..], b"and data"]));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_copy_bits")]
    pub fn copy_bits(&self, offset: usize, into: &mut [u8]) -> Result<(), SkbError> {
        if offset.checked_add(into.len()).is_none_or(|end| end > self.len()) {
            return Err(SkbError::TooShort);
        }
        copy_from(self.chunks().ok_or(SkbError::Unreadable)?, offset, into);
        Ok(())
    }

    /// Copies the packet to one with all bytes in its head, in ordinary memory, with the same headroom and no
    /// mark. Linux: `skb_copy`.
    ///
    /// Allocates if bytes and headroom are more than 512 bytes.
    ///
    /// ```
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let cache = SkbCache::new(8)?;
    /// let packet = SkBuff::from_bytes(&cache, 32, b"data").unwrap();
    /// let mut copy = packet.copy().unwrap();
    /// copy.data_mut().unwrap().fill(0);
    /// assert_eq!((packet.data(), copy.headroom()), (&b"data"[..], 32));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_copy")]
    pub fn copy(&self) -> Result<Self, SkbError> {
        if !self.readable() {
            return Err(SkbError::Unreadable);
        }
        let block = self.block.another().ok_or(SkbError::Exhausted)?;
        let mut copy = Self::ordinary(block, self.headroom(), self.headroom(), self.len())?;
        self.copy_bits(0, copy.put(self.len())?)?;
        Ok(copy)
    }
}

impl Block {
    /// Copies the first bytes of the fragments, which the CPU can read, into a range of the head.
    pub(crate) fn copy_to_head(&mut self, room: Range<usize>) {
        let (head, frags) = self.head_and_frags();
        copy_from(frags.as_slice().iter().map(SkbFrag::data), 0, &mut head[room]);
    }
}

/// Copies from chunks that have enough bytes, after skipping `skip` bytes.
fn copy_from<'a>(chunks: impl Iterator<Item = &'a [u8]>, mut skip: usize, mut into: &mut [u8]) {
    for chunk in chunks {
        let skipped = skip.min(chunk.len());
        skip -= skipped;
        let chunk = &chunk[skipped..];
        let (room, rest) = into.split_at_mut(chunk.len().min(into.len()));
        room.copy_from_slice(&chunk[..room.len()]);
        into = rest;
    }
}
