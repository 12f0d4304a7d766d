//! Cuts both ends, and makes a packet linear.

use crate::error::SkbError;
use crate::sk_buff::SkBuff;

impl SkBuff {
    /// Cuts bytes off the front, across fragments. Consumed fragments return at once. Linux: `skb_pull`, and
    /// `pskb_pull` without its copy.
    ///
    /// Within the head it is free, also for a cloned packet: each clone has its own bounds. Beyond the head,
    /// a cloned packet first gets a block of its own, see [`unclone`](Self::unclone).
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_skb::{SkBuff, SkbCache, SkbError};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head").unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 0, 1500).unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 0, 1500).unwrap();
    /// packet.pull(4 + 1600).unwrap();
    /// assert_eq!((packet.len(), packet.nr_frags(), pool.inflight().out), (1400, 1, 1));
    /// packet.trim(100).unwrap();
    /// assert_eq!((packet.frags()[0].offset(), packet.frags()[0].len()), (100, 100));
    /// assert_eq!(packet.pull(101), Err(SkbError::TooShort));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_pull")]
    #[doc(alias = "pskb_pull")]
    pub fn pull(&mut self, len: usize) -> Result<(), SkbError> {
        let Some(beyond) = len.checked_sub(self.head_len()).filter(|&beyond| beyond > 0) else {
            self.data += len as u32;
            return Ok(());
        };
        if beyond > self.data_len() {
            return Err(SkbError::TooShort);
        }
        let data = std::mem::replace(&mut self.data, self.tail); // cut bytes are not copied
        let own = self.unclone();
        if let (Ok(()), Some(block)) = (own, self.block.get_mut()) {
            block.frags_mut().pull(beyond);
        } else {
            self.data = data;
        }
        own
    }

    /// Keeps the first `len` bytes; the rest returns to its pool at once. Linux: `pskb_trim`.
    ///
    /// A cloned packet with fragments first gets a block of its own; without fragments the cut is free. Does
    /// nothing if the packet is not longer.
    #[doc(alias = "pskb_trim")]
    #[doc(alias = "skb_trim")]
    pub fn trim(&mut self, len: usize) -> Result<(), SkbError> {
        if len >= self.len() {
            return Ok(());
        }
        if self.nr_frags() > 0 {
            self.unclone()?;
            let keep = len.saturating_sub(self.head_len());
            self.block.get_mut().ok_or(SkbError::Cloned)?.frags_mut().trim(keep);
        }
        self.trim_head(len);
        Ok(())
    }

    /// Cuts the head down to `len` bytes, if it is longer.
    pub(crate) fn trim_head(&mut self, len: usize) {
        self.tail = self.data + len.min(self.head_len()) as u32;
    }

    /// Makes the first `len` bytes linear: they are in the head. With [`len`](Self::len), all of the
    /// packet is. Linux: `pskb_may_pull`, `skb_linearize`.
    ///
    /// Free if they are already. Otherwise they are copied behind the head's data, if there is room and no
    /// clone, or together with it into ordinary memory: the block's own 512 bytes, or an allocation. Consumed
    /// fragments return at once.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::with_capacity(&cache, 0, 0).unwrap();
    /// let mut buffer = pool.alloc_page().unwrap();
    /// buffer.bytes_mut().unwrap()[..6].copy_from_slice(b"header");
    /// packet.add_frag(buffer, 0, 1500).unwrap();
    /// packet.make_linear(6).unwrap();
    /// assert_eq!((packet.data(), packet.data_len()), (&b"header"[..], 1494));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "pskb_may_pull")]
    #[doc(alias = "skb_linearize")]
    pub fn make_linear(&mut self, len: usize) -> Result<(), SkbError> {
        let Some(more) = len.checked_sub(self.head_len()).filter(|&more| more > 0) else { return Ok(()) };
        if len > self.len() {
            return Err(SkbError::TooShort);
        }
        if !self.readable() {
            return Err(SkbError::Unreadable);
        }
        if self.is_cloned() || self.room_behind_head() < more {
            self.own_head(0, len)?;
        }
        let tail = self.tail as usize;
        let block = self.block.get_mut().ok_or(SkbError::Cloned)?;
        block.copy_to_head(tail..tail + more);
        block.frags_mut().pull(more);
        self.tail += more as u32;
        Ok(())
    }
}
