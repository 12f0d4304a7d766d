//! A packet for network stacks.
//!
//! What   a head (the linear part) and up to 17 fragments, in memory of pools and ordinary memory, mixed.
//!        Clones share the data; the last to be dropped returns every buffer, once, on any thread. Linux:
//!        `struct sk_buff` with `skb_shared_info`.
//! Who    the thread that has it. What clones share never changes. Most operations first copy the description
//!        for this packet (a block, and the head's bytes), like Linux's; `push` and `put` refuse. Moving the
//!        ends of the head needs neither: each clone has its own bounds.
//! How    a packet is 32 bytes: a counted reference to a block of an [`SkbCache`], and the place of its data
//!        in the head.
//! Cost   one compare-and-swap to make one, and one to drop it. A clone: one atomic operation, and one to
//!        drop it. Nothing is allocated, except a head of more than 512 bytes of ordinary memory.

use std::fmt;
use std::ops::Range;

use pagepool::internal::{tag_shared, take_apart};
use pagepool::{DeviceAddr, DomainId, MAX_FRAGS, PageBuf, Tag, XdpBuff, XdpFrame};

use crate::block::Block;
use crate::block_ref::{BlockRef, NewBlock};
use crate::cache::SkbCache;
use crate::error::SkbError;
use crate::frag::{SkbFrag, SkbMemory};
use crate::head_memory::{Head, ordinary};

/// Headroom of an empty head, for the headers of a stack.
pub(crate) const EMPTY_HEAD: u32 = 128;

/// A packet for network stacks: head and fragments, cloned without a copy, returned with the last clone.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, Pool, PoolParams};
/// use pagepool_skb::{SkBuff, SkbCache};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// # let pool = Pool::new(PoolParams { headroom: 64, ..Default::default() }, arena)?.bind();
/// let cache = SkbCache::new(64)?;
/// let mut received = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
/// received.data_mut().fill(7);
///
/// let mut packet = SkBuff::from_frame(&cache, XdpFrame::from(received)).unwrap();
/// packet.pull(14).unwrap();
/// let clone = packet.clone();
/// let reader = std::thread::spawn(move || clone.data()[0]);
/// assert_eq!(reader.join().unwrap(), 7);
///
/// packet.push(4).unwrap().copy_from_slice(b"head");
/// assert_eq!((packet.len(), packet.head_len(), packet.nr_frags()), (50, 50, 0));
/// drop(packet);
/// assert_eq!(pool.inflight().out, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "sk_buff")]
#[must_use = "a packet that is dropped at once is lost"]
pub struct SkBuff {
    pub(crate) block: BlockRef,
    /// Place of the data in the head's memory; each clone has its own.
    pub(crate) data: u32,
    pub(crate) tail: u32,
    pub(crate) recycle: bool,
}

const _: () = assert!(size_of::<SkBuff>() <= 32, "two packets in a cache line");

impl SkBuff {
    /// Converts a frame without a copy, and marks it for recycling. A first buffer that the CPU cannot read
    /// becomes the first fragment, behind an empty head with 128 bytes of headroom. The frame's metadata is
    /// lost. Linux: `xdp_build_skb_from_frame`.
    ///
    /// `Err(frame)` if the cache is exhausted, or 17 further buffers follow a first one that the CPU cannot
    /// read.
    ///
    /// Cost: one compare-and-swap, and a move per buffer.
    #[doc(alias = "xdp_build_skb_from_frame")]
    pub fn from_frame(cache: &SkbCache, frame: XdpFrame) -> Result<Self, XdpFrame> {
        if !Self::may_have(&frame) {
            return Err(frame);
        }
        let Some(mut block) = BlockRef::take(cache) else { return Err(frame) };
        let (data, tail) = block.fill(frame);
        Ok(Self { block: block.into(), data, tail, recycle: true })
    }

    /// Converts a packet inside the poll, like [`from_frame`](Self::from_frame). Linux:
    /// `xdp_build_skb_from_buff`.
    #[doc(alias = "xdp_build_skb_from_buff")]
    pub fn from_buff(cache: &SkbCache, packet: XdpBuff) -> Result<Self, XdpBuff> {
        Self::from_frame(cache, XdpFrame::from(packet)).map_err(XdpFrame::into_buff)
    }

    /// Whether a frame can become a packet.
    pub(crate) fn may_have(frame: &XdpFrame) -> bool {
        frame.buffer().as_ptr().is_some() || frame.frags().len() < MAX_FRAGS
    }

    /// Creates an empty packet with a head in ordinary memory, with `headroom` bytes before its data and room
    /// for `len` bytes of data. Linux: `alloc_skb` and `skb_reserve`.
    ///
    /// Allocates if both together are more than 512 bytes.
    ///
    /// ```
    /// use pagepool_skb::{SkBuff, SkbCache};
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::with_capacity(&cache, 64, 100).unwrap();
    /// packet.put(5).unwrap().copy_from_slice(b"hello");
    /// assert_eq!((packet.headroom(), packet.data()), (64, &b"hello"[..]));
    /// assert!(packet.tailroom() >= 95);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "alloc_skb")]
    pub fn with_capacity(cache: &SkbCache, headroom: usize, len: usize) -> Result<Self, SkbError> {
        let block = BlockRef::take(cache).ok_or(SkbError::Exhausted)?;
        Self::ordinary(block, headroom, headroom, len)
    }

    /// Creates a packet with a copy of these bytes in its head, and `headroom` bytes before them. See
    /// [`with_capacity`](Self::with_capacity).
    pub fn from_bytes(cache: &SkbCache, headroom: usize, bytes: &[u8]) -> Result<Self, SkbError> {
        let mut packet = Self::with_capacity(cache, headroom, bytes.len())?;
        packet.put(bytes.len())?.copy_from_slice(bytes);
        Ok(packet)
    }

    /// An empty packet in a new block, with a head of ordinary memory; see [`ordinary`].
    pub(crate) fn ordinary(
        mut block: NewBlock,
        least: usize,
        wanted: usize,
        len: usize,
    ) -> Result<Self, SkbError> {
        let (head, headroom) = ordinary(least, wanted, len)?;
        block.set_head(head);
        Ok(Self { block: block.into(), data: headroom as u32, tail: headroom as u32, recycle: false })
    }

    /// Appends a fragment: `len` bytes at `offset` in a pool's buffer, a shared buffer, an `Arc<[u8]>`, or
    /// borrowed memory ([`SkbMemory::owned`]). Pool memory marks the packet for recycling. Linux:
    /// `skb_add_rx_frag`.
    ///
    /// `Err(memory)` if it has no such bytes, the packet has 17 fragments or 4 GiB, or a clone shares them.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head").unwrap();
    /// packet.add_frag(std::sync::Arc::<[u8]>::from(*b"ordinary"), 0, 8).unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 0, 1500).unwrap();
    /// assert_eq!((packet.len(), packet.data_len(), packet.recycles()), (1512, 1508, true));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "skb_add_rx_frag")]
    pub fn add_frag(
        &mut self,
        memory: impl Into<SkbMemory>,
        offset: usize,
        len: usize,
    ) -> Result<(), SkbMemory> {
        let memory = memory.into();
        let fits = offset.checked_add(len).is_some_and(|end| end <= memory.size() && end < u32::MAX as usize);
        let pooled = memory.buffer().is_some();
        let fits = fits && len > 0 && self.len_fits(len);
        match self.block.get_mut() {
            Some(block) if fits => {
                block.frags_mut().push(SkbFrag::new(memory, offset, len)).map_err(SkbFrag::into_memory)?;
                self.recycle |= pooled;
                Ok(())
            }
            _ => Err(memory),
        }
    }

    /// Bytes of the packet. Linux: `skb->len`.
    #[inline]
    pub fn len(&self) -> usize {
        self.head_len() + self.data_len()
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in the head. Linux: `skb_headlen`.
    #[doc(alias = "skb_headlen")]
    #[inline]
    pub fn head_len(&self) -> usize {
        (self.tail - self.data) as usize
    }

    /// Bytes in the fragments. Linux: `skb->data_len`.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.block.frags().len()
    }

    /// Bytes before the head's data. Linux: `skb_headroom`.
    #[doc(alias = "skb_headroom")]
    #[inline]
    pub fn headroom(&self) -> usize {
        self.data as usize
    }

    /// Bytes behind the head's data into which the packet can grow; 0 if it has fragments. Linux:
    /// `skb_tailroom`.
    #[doc(alias = "skb_tailroom")]
    #[inline]
    pub fn tailroom(&self) -> usize {
        if self.nr_frags() > 0 { 0 } else { self.room_behind_head() }
    }

    /// Bytes of memory that the packet occupies: its block, and all of each buffer, shared ones included.
    /// Looks at every fragment. Linux: `skb->truesize`.
    pub fn truesize(&self) -> usize {
        size_of::<Block>() + self.block.head().size() + self.truesize_of_frags()
    }

    pub(crate) fn truesize_of_frags(&self) -> usize {
        self.frags().iter().map(|frag| frag.memory().size()).sum()
    }

    /// Number of fragments.
    #[inline]
    pub fn nr_frags(&self) -> usize {
        self.block.frags().count()
    }

    /// The fragments, in order.
    pub fn frags(&self) -> &[SkbFrag] {
        self.block.frags().as_slice()
    }

    /// Whether a clone shares its data. Linux: `skb_cloned`.
    #[doc(alias = "skb_cloned")]
    #[inline]
    pub fn is_cloned(&self) -> bool {
        self.block.is_shared()
    }

    /// Whether it is marked for recycling: some of its memory belongs to a pool. Memory returns to its pool
    /// without the mark too; the mark only keeps marked and unmarked packets from being merged, as in Linux.
    /// Linux: `skb->pp_recycle`.
    #[inline]
    pub fn recycles(&self) -> bool {
        self.recycle
    }

    /// Whether the CPU can read all of it. It can always read the head. Linux: `skb_frags_readable`.
    #[doc(alias = "skb_frags_readable")]
    pub fn readable(&self) -> bool {
        self.frags().iter().all(SkbFrag::readable)
    }

    /// The head's data.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.block.head_bytes()[self.data as usize..self.tail as usize]
    }

    /// The head's data, mutable; `None` while a clone shares it.
    #[inline]
    pub fn data_mut(&mut self) -> Option<&mut [u8]> {
        let (data, tail) = (self.data as usize, self.tail as usize);
        Some(&mut self.block.get_mut()?.head_bytes_mut()[data..tail])
    }

    /// The head's buffer, if it belongs to a pool. The data begins there at [`headroom`](Self::headroom).
    pub fn head_buffer(&self) -> Option<&PageBuf> {
        match self.block.head() {
            Head::Pool(buffer, _) => Some(buffer),
            _ => None,
        }
    }

    /// Tags all its pool memory, of any pools, with its user: see [`PageBuf::set_tag`]. Clones share the tag;
    /// the last call counts.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Holders, Pool, PoolParams, Tag};
    /// # use pagepool_skb::{SkBuff, SkbCache};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { holders: Holders::Ages, ..Default::default() }, arena)?.bind();
    /// let cache = SkbCache::new(8)?;
    /// let mut packet = SkBuff::from_bytes(&cache, 0, b"head").unwrap();
    /// packet.add_frag(pool.alloc_page().unwrap(), 0, 1500).unwrap();
    /// packet.set_tag(Tag::new("socket 7"));
    /// let holders = pool.handle().holders().unwrap();
    /// assert_eq!(holders.groups[0].tag.as_deref(), Some("socket 7"));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn set_tag(&mut self, tag: Tag) {
        let buffers = self.frags().iter().filter_map(|frag| frag.memory().buffer());
        self.head_buffer().into_iter().chain(buffers).for_each(|buffer| tag_shared(buffer, tag));
    }

    /// Device address of the head's data, if it lies in a pool's buffer that is mapped in that domain.
    pub fn head_dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let at = self.head_buffer()?.dma_addr_in(domain)?;
        Some(DeviceAddr(at.0 + u64::from(self.data)))
    }

    #[inline]
    pub(crate) fn room_behind_head(&self) -> usize {
        self.block.head_bytes().len() - self.tail as usize
    }

    /// Whether the packet may grow by `more` bytes.
    pub(crate) fn len_fits(&self, more: usize) -> bool {
        self.len().checked_add(more).is_some_and(|len| len < u32::MAX as usize)
    }
}

impl Clone for SkBuff {
    /// Creates a packet that shares this one's data and has its own ends. Linux: `skb_clone`. Cannot fail;
    /// one atomic operation.
    #[inline]
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), ..*self }
    }
}

impl fmt::Debug for SkBuff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, recycle, .. } = self;
        let (head, data) = (self.head_len(), self.data_len());
        write!(f, "SkBuff {{ {head} + {data} bytes, {} frags, {block:?}", self.nr_frags())?;
        if *recycle { write!(f, ", recycle }}") } else { write!(f, " }}") }
    }
}

impl Block {
    /// Moves a frame's buffers into an empty block, which has room for them; returns the ends of the data in
    /// the head.
    fn fill(&mut self, frame: XdpFrame) -> (u32, u32) {
        let (head, Range { start: data, end: tail }, hard_end) = take_apart(frame, |frag| {
            let refused = self.frags_mut().push(frag.into());
            debug_assert!(refused.is_ok(), "a frame has no more buffers than a packet");
        });
        if head.as_ptr().is_some() {
            self.set_head(Head::Pool(head, hard_end));
            return (data, tail);
        }
        if tail > data {
            self.frags_mut().push_front(SkbFrag::new(head.into(), data as usize, (tail - data) as usize));
        }
        (EMPTY_HEAD, EMPTY_HEAD)
    }
}
