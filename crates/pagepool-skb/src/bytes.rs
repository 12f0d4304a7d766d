//! Packets as `bytes::Bytes`, without a copy.
//!
//! What   the head and each fragment become one `Bytes` that owns it. A buffer returns to its pool when the
//!        last clone or slice is dropped, on any thread. Feature `bytes`.
//! Cost   one box per buffer, from `Bytes::from_owner`; no copy and no other allocation.

use bytes::Bytes;

use crate::frag::SkbFrag;
use crate::frags::Frags;
use crate::sk_buff::SkBuff;

impl SkBuff {
    /// Converts the packet into one `Bytes` for its head (if that has data) and one for each fragment, in
    /// order, without a copy. `Err(packet)` if the CPU cannot read all of it.
    ///
    /// Buffers of a cloned packet stay shared with the clones. A head that is shared, or not in a pool's
    /// buffer, keeps the packet's block of the cache until its `Bytes` is dropped.
    ///
    /// Cost: one box per buffer, when the iterator gives it, and one atomic operation per shared fragment.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head").unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 0, 1500).unwrap();
    /// let parts: Vec<bytes::Bytes> = packet.into_bytes().unwrap().collect();
    /// assert_eq!((&parts[0][..], parts[1].len()), (&b"head"[..], 1500));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn into_bytes(mut self) -> Result<impl Iterator<Item = Bytes>, SkBuff> {
        if !self.readable() {
            return Err(self);
        }
        let mut frags = Frags::new();
        self.take_frags(&mut frags);
        let head = match self.take_head() {
            Some(head) => Some(bytes_of(head)),
            None if self.head_len() > 0 => Some(Bytes::from_owner(Linear(self))),
            None => None,
        };
        Ok(head.into_iter().chain(frags.into_ordered().map(bytes_of)))
    }
}

/// A fragment as the owner of its bytes.
struct Stretch(SkbFrag);

impl AsRef<[u8]> for Stretch {
    fn as_ref(&self) -> &[u8] {
        self.0.data()
    }
}

fn bytes_of(frag: SkbFrag) -> Bytes {
    Bytes::from_owner(Stretch(frag))
}

/// A packet as the owner of the bytes in its head.
struct Linear(SkBuff);

impl AsRef<[u8]> for Linear {
    fn as_ref(&self) -> &[u8] {
        self.0.data()
    }
}
