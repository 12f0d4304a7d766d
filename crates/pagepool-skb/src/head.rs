//! The head: room before and behind it, and a packet's own copy of a shared one.

use crate::error::SkbError;
use crate::head_memory::ordinary;
use crate::sk_buff::SkBuff;

impl SkBuff {
    /// Makes the packet longer at its front; returns the new bytes. Linux: `skb_push`.
    ///
    /// Refused while a clone shares them, and without enough headroom; see [`cow_head`](Self::cow_head).
    ///
    /// ```
    /// use pagepool_skb::{SkBuff, SkbCache, SkbError};
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 8, b"data").unwrap();
    /// packet.push(5).unwrap().copy_from_slice(b"head ");
    /// assert_eq!(packet.data(), b"head data");
    /// assert_eq!(packet.push(4), Err(SkbError::NoRoom));
    ///
    /// let clone = packet.clone();
    /// assert_eq!(packet.push(1), Err(SkbError::Cloned));
    /// packet.cow_head(16).unwrap();
    /// packet.push(5).unwrap().copy_from_slice(b"more ");
    /// assert_eq!((packet.data(), clone.data()), (&b"more head data"[..], &b"head data"[..]));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_push")]
    pub fn push(&mut self, len: usize) -> Result<&mut [u8], SkbError> {
        let end = self.data as usize;
        let fits = self.len_fits(len);
        let block = self.block.get_mut().ok_or(SkbError::Cloned)?;
        let from = end.checked_sub(len).filter(|_| fits).ok_or(SkbError::NoRoom)?;
        self.data = from as u32;
        Ok(&mut block.head_bytes_mut()[from..end])
    }

    /// Makes the packet longer at its end; returns the new bytes, which are not set. Linux: `skb_put`.
    ///
    /// Refused while a clone shares them, without enough tailroom, and for a packet with fragments.
    #[doc(alias = "skb_put")]
    pub fn put(&mut self, len: usize) -> Result<&mut [u8], SkbError> {
        let (from, room) = (self.tail as usize, self.tailroom());
        let block = self.block.get_mut().ok_or(SkbError::Cloned)?;
        if len > room {
            return Err(SkbError::NoRoom);
        }
        self.tail += len as u32;
        Ok(&mut block.head_bytes_mut()[from..from + len])
    }

    /// Makes the head writable with at least `headroom` bytes before it. Linux: `skb_cow_head`.
    ///
    /// Costs nothing if it is already. Otherwise it copies the head to ordinary memory: the block's own 512
    /// bytes, or an allocation if those are too few. A packet that a clone shares gets a block of its own,
    /// with a reference to each fragment (one atomic operation each).
    #[doc(alias = "skb_cow_head")]
    pub fn cow_head(&mut self, headroom: usize) -> Result<(), SkbError> {
        if self.is_cloned() || self.headroom() < headroom {
            return self.own_head(headroom, self.head_len());
        }
        Ok(())
    }

    /// Ends the sharing with clones, like [`cow_head`](Self::cow_head), but may reduce the headroom. Linux:
    /// `skb_unclone`.
    ///
    /// ```
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"data").unwrap();
    /// let clone = packet.clone();
    /// assert!(packet.data_mut().is_none());
    /// packet.unclone().unwrap();
    /// packet.data_mut().unwrap().fill(0);
    /// assert_eq!(clone.data(), b"data");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_unclone")]
    #[doc(alias = "pskb_expand_head")]
    pub fn unclone(&mut self) -> Result<(), SkbError> {
        if self.is_cloned() { self.own_head(0, self.head_len()) } else { Ok(()) }
    }

    /// Copies the head to ordinary memory with at least `headroom` bytes before it, and room for `capacity`
    /// bytes of data; for a cloned packet in a block of its own.
    pub(crate) fn own_head(&mut self, headroom: usize, capacity: usize) -> Result<(), SkbError> {
        let (from, len) = (self.data as usize..self.tail as usize, self.head_len());
        let wanted = headroom.max(self.headroom());
        let (head, at) = ordinary(headroom, wanted, capacity)?;
        let ends = (at as u32, (at + len) as u32);
        // The new head and its ends are in place before the old one returns to its pool, which may run
        // callbacks.
        if let Some(block) = self.block.get_mut() {
            let old = block.move_head(head, from, at);
            (self.data, self.tail) = ends;
            drop(old);
        } else {
            let mut own = self.block.another().ok_or(SkbError::Exhausted)?;
            own.set_head(head);
            own.head_bytes_mut()[at..at + len].copy_from_slice(self.data());
            for frag in self.block.references() {
                let refused = own.frags_mut().push(frag);
                debug_assert!(refused.is_ok(), "a new block has room for those of another");
            }
            let shared = std::mem::replace(&mut self.block, own.into());
            (self.data, self.tail) = ends;
            drop(shared);
        }
        Ok(())
    }
}
