//! Merges two packets.
//!
//! The rules are those of net/core/skbuff.c:skb_try_coalesce (v7.3). Two bugs there (1effe8ca4e34,
//! 0646dc31ca88) dropped a merged fragment in another way than it was counted. Here the reference itself
//! knows how: a fragment of a cloned packet gives a clone of a shared buffer, whatever the marks are.

use pagepool::MAX_FRAGS;

use crate::frag::SkbFrag;
use crate::frags::Frags;
use crate::head_memory::Head;
use crate::sk_buff::SkBuff;

/// What a merge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesced {
    /// Growth of the target's [`truesize`](SkBuff::truesize) in bytes; 0 if the data was copied. Linux:
    /// `delta_truesize`.
    pub truesize: usize,
    /// The other packet's head became a fragment. Linux: `fragstolen`.
    pub stolen_head: bool,
}

impl SkBuff {
    /// Appends another packet without a copy; `Err(from)` if that is impossible. Linux: `skb_try_coalesce`.
    ///
    /// Refused if this packet is cloned; if only one of both is marked for recycling, or only one is
    /// readable; if there would be more than 17 fragments; if the other's head has data and is in ordinary
    /// memory, or a clone shares it. Data that fits the tailroom of a packet without fragments is copied
    /// there, from any memory.
    ///
    /// Cost: nothing else is copied. Fragments of a cloned packet become shared, with one atomic operation
    /// each; others move.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, Pool, PoolParams};
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams { max_len: 1500, ..Default::default() }, arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let received = || XdpBuff::received(pool.alloc_page().unwrap(), 1500).unwrap();
    /// let receive = || SkBuff::from_buff(&cache, received()).unwrap();
    /// let mut stream = receive();
    /// stream.pull(54).unwrap();
    /// for _ in 0..17 {
    ///     let mut next = receive();
    ///     next.pull(54).unwrap();
    ///     let merged = stream.try_coalesce(next).unwrap();
    ///     assert!(merged.stolen_head || merged.truesize == 0);
    /// }
    /// assert_eq!((stream.len(), pool.inflight().out), (18 * 1446, 1 + stream.nr_frags() as u64));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_try_coalesce")]
    pub fn try_coalesce(&mut self, mut from: Self) -> Result<Coalesced, Self> {
        if self.is_cloned() || self.recycle != from.recycle || self.readable() != from.readable() {
            return Err(from);
        }
        if from.len() <= self.tailroom() && from.readable() {
            return self.append_copy(&from).ok_or(from);
        }
        let stolen_head = from.head_len() > 0;
        let frags = self.nr_frags() + from.nr_frags() + usize::from(stolen_head);
        let parts_with_head = !from.is_cloned() && from.head_buffer().is_some();
        if frags > MAX_FRAGS || !self.len_fits(from.len()) || (stolen_head && !parts_with_head) {
            return Err(from);
        }
        let stolen = if stolen_head { from.block.head().size() } else { 0 };
        let truesize = from.truesize_of_frags() + stolen;
        if let Some(block) = self.block.get_mut() {
            let refused = from.take_head().map(|head| block.frags_mut().push(head));
            debug_assert!(refused.is_none_or(|pushed| pushed.is_ok()), "there is room for it");
            from.take_frags(block.frags_mut());
        }
        Ok(Coalesced { truesize, stolen_head })
    }

    /// Copies a packet into the tailroom, which is large enough.
    fn append_copy(&mut self, from: &Self) -> Option<Coalesced> {
        from.copy_bits(0, self.put(from.len()).ok()?).ok()?;
        Some(Coalesced { truesize: 0, stolen_head: false })
    }

    /// Replaces the head by an empty one and returns its data as a fragment, if it is in a pool's buffer that
    /// no clone shares.
    pub(crate) fn take_head(&mut self) -> Option<SkbFrag> {
        let (offset, len) = (self.headroom(), self.head_len());
        self.head_buffer().filter(|_| len > 0)?;
        let Head::Pool(buffer, _) = self.block.get_mut()?.set_head(Head::Inside) else { return None };
        (self.data, self.tail) = (0, 0);
        Some(SkbFrag::new(buffer.into(), offset, len))
    }

    /// Moves the fragments behind those of another packet, which has room; if a clone shares them, adds
    /// references to them.
    pub(crate) fn take_frags(&mut self, to: &mut Frags) {
        if let Some(block) = self.block.get_mut() {
            return block.frags_mut().move_from(0, to);
        }
        for frag in self.block.references() {
            let refused = to.push(frag);
            debug_assert!(refused.is_ok(), "the caller made sure of the room");
        }
    }
}
