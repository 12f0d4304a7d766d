//! Divides a packet.

use crate::error::SkbError;
use crate::sk_buff::{EMPTY_HEAD, SkBuff};

impl SkBuff {
    /// Keeps the first `at` bytes and returns the rest. A fragment across the bound is shared by both; bytes
    /// of the head behind the bound are copied. Linux: `skb_split`.
    ///
    /// A cloned packet first gets a block of its own. Cost: one block, and one atomic operation for a shared
    /// fragment.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head").unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 0, 3000).unwrap();
    /// let rest = packet.split(1004).unwrap();
    /// assert_eq!((packet.len(), rest.len(), pool.inflight().out), (1004, 2000, 1));
    /// drop(packet);
    /// assert_eq!((rest.frags()[0].offset(), pool.inflight().out), (1000, 1));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_split")]
    pub fn split(&mut self, at: usize) -> Result<Self, SkbError> {
        if at > self.len() {
            return Err(SkbError::TooShort);
        }
        self.unclone()?;
        let block = self.block.another().ok_or(SkbError::Exhausted)?;
        let copied = self.data().get(at..).unwrap_or(&[]);
        let mut rest = Self::ordinary(block, 0, EMPTY_HEAD as usize, copied.len())?;
        rest.put(copied.len())?.copy_from_slice(copied);
        rest.recycle = self.recycle;
        let in_frags = at.saturating_sub(self.head_len());
        if let (Some(front), Some(back)) = (self.block.get_mut(), rest.block.get_mut()) {
            front.frags_mut().split(in_frags, back.frags_mut());
        }
        self.trim_head(at);
        Ok(rest)
    }
}
