//! The buffers of a packet beyond its first.
//!
//! What   a block of up to [`MAX_FRAGS`] buffers with their data, in an array of the pool of the packet's
//!        first buffer. No device or peer process can access the array and forge a handle. Linux keeps this
//!        list in the tailroom of the packet's own page.
//! Who    the holder of the packet: a chain is part of a `XdpBuff` or `XdpFrame`, and changes threads with
//!        it.
//! Life   a chain is emptied and its block put back before the packet's first buffer returns to its pool.
//!        Until then that buffer keeps the pool, and so the block (I3, I9).
//! Cost   a block is taken with the first further buffer and put back with the last: on the pool's owner
//!        thread in an array of its own ([`ChainStash`](crate::recycle::chain_blocks::ChainStash)), elsewhere
//!        with one compare-and-swap.

// UNSAFETY: blocks are raw memory that the chain's holder accesses by address.
#![expect(unsafe_code)]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::num::NonZeroU32;

use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;
use crate::holders::tag::Tag;
use crate::recycle::chain_blocks::ChainBlock;

/// Most buffers of a packet beyond its first. Linux: `MAX_SKB_FRAGS`.
#[doc(alias = "MAX_SKB_FRAGS")]
pub const MAX_FRAGS: usize = 17;

/// A buffer of a packet beyond its first, and the range of its data. Linux: `skb_frag_t`.
#[doc(alias = "skb_frag_t")]
#[derive(Debug)]
pub struct Frag {
    buffer: PageBuf,
    offset: u32,
    len: u32,
}

impl Frag {
    /// The caller has checked that the data lies within the buffer.
    pub(crate) fn new(buffer: PageBuf, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= buffer.len() && len > 0, "I1: data {offset}+{len} beyond its buffer");
        Self { buffer, offset: offset as u32, len: len as u32 }
    }

    /// The buffer.
    pub fn buffer(&self) -> &PageBuf {
        &self.buffer
    }

    /// Offset of the data in the buffer, in bytes.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Length of the data in bytes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a fragment is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// The data; empty if the CPU cannot read it.
    pub fn data(&self) -> &[u8] {
        let (from, to) = (self.offset(), self.offset() + self.len());
        self.buffer.bytes().map_or(&[], |bytes| &bytes[from..to])
    }

    /// The data, mutable.
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.offset(), self.offset() + self.len());
        self.buffer.bytes_mut().map_or(&mut [], |bytes| &mut bytes[from..to])
    }

    /// Tags the buffer with its user: see [`PageBuf::set_tag`].
    pub fn set_tag(&mut self, tag: Tag) {
        self.buffer.set_tag(tag);
    }

    /// Returns the buffer. Read [`offset`](Self::offset) and [`len`](Self::len) first: they are lost.
    #[inline]
    pub fn into_buffer(self) -> PageBuf {
        self.buffer
    }

    /// Free bytes behind the data.
    pub(crate) fn tailroom(&self) -> usize {
        self.buffer.len() - (self.offset + self.len) as usize
    }

    /// Appends zero bytes, for which there is room.
    pub(crate) fn grow(&mut self, more: usize) {
        let from = self.len as usize;
        self.len += more as u32;
        let data = self.data_mut();
        if !data.is_empty() {
            data[from..].fill(0);
        }
    }

    /// Cuts bytes off the end; at least one stays.
    pub(crate) fn shrink(&mut self, less: usize) {
        debug_assert!(less < self.len as usize, "I1: a fragment is never empty");
        self.len -= less as u32;
    }

    /// Merges a fragment whose memory and data continue this one's, in the same page; otherwise `Err(next)`.
    /// The page then counts one fragment less.
    fn merge(&mut self, next: Frag) -> Result<(), Frag> {
        let frags = self.buffer.is_frag() && next.buffer.is_frag();
        let end = self.buffer.start() + self.buffer.len() as u64;
        let follows = self.tailroom() == 0 && next.offset == 0 && next.buffer.start() == end;
        let (pool, page) = (self.buffer.pool, self.buffer.page());
        if !(frags && follows && next.buffer.pool == pool && next.buffer.page() == page) {
            return Err(next);
        }
        let (from, len) = (self.buffer.offset(), self.buffer.len() + next.buffer.len());
        self.len += next.len;
        let short = std::mem::replace(&mut self.buffer, PageBuf::part(pool, page, from, len));
        let _ = short.into_parts(); // the longer handle replaces it
        drop(next);
        Ok(())
    }
}

/// The further buffers of one packet, in a [`ChainBlock`] of the pool.
pub(crate) struct FragList {
    count: u32,
    frags: [MaybeUninit<Frag>; MAX_FRAGS],
}

impl FragList {
    /// Empties a block that was just taken. Its bytes may be uninitialised.
    fn start(block: &mut MaybeUninit<Self>) -> &mut Self {
        // SAFETY: the block is borrowed exclusively, and the field lies in it.
        unsafe { (*block.as_mut_ptr()).count = 0 };
        // SAFETY: the count is initialised now, and the entries need not be.
        unsafe { block.assume_init_mut() }
    }

    fn frags(&self) -> &[Frag] {
        // SAFETY: I1. The first `count` entries are initialised, and the chain owns them.
        unsafe { std::slice::from_raw_parts(self.frags.as_ptr().cast(), self.count as usize) }
    }

    fn frags_mut(&mut self) -> &mut [Frag] {
        // SAFETY: I1. As in `frags`, and the chain is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.frags.as_mut_ptr().cast(), self.count as usize) }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends a buffer without merging; `Err(frag)` if the list is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, frag: Frag) -> Result<(), Frag> {
        let Some(room) = self.frags.get_mut(self.count as usize) else { return Err(frag) };
        room.write(frag);
        self.count += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<Frag> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: I1. The entry was initialised, and is not counted any more, so it is read out once.
        Some(unsafe { self.frags[self.count as usize].assume_init_read() })
    }
}

/// A packet's chain, if it has one. Each method takes the packet's first buffer: the chain lies in its pool.
///
/// Must not be dropped with a block: the packet's holder ends the chain first.
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Chain(Option<NonZeroU32>);

impl Chain {
    /// No further buffers.
    pub(crate) const NONE: Self = Self(None);

    /// Whether there are no further buffers.
    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    fn block(&self, pool: PoolPtr) -> Option<*mut FragList> {
        Some(pool.chains.block(self.0?.get() - 1).cast())
    }

    /// The further buffers, in order.
    pub(crate) fn frags(&self, head: &PageBuf) -> &[Frag] {
        // SAFETY: I1, I3. Only this chain uses the block, and the packet's first buffer keeps the pool.
        self.block(head.pool).map_or(&[], |block| unsafe { &*block }.frags())
    }

    pub(crate) fn frags_mut(&mut self, head: &PageBuf) -> &mut [Frag] {
        // SAFETY: I1, I3. As in `frags`, and the chain is borrowed exclusively.
        self.block(head.pool).map_or(&mut [], |block| unsafe { &mut *block }.frags_mut())
    }

    /// Bytes of data in the further buffers. Counted at each call: [`frags_mut`](Self::frags_mut) allows
    /// replacing them.
    pub(crate) fn len(&self, head: &PageBuf) -> usize {
        self.frags(head).iter().map(Frag::len).sum()
    }

    /// Appends a buffer, or extends the last one if the new one continues it. `Err(frag)` if the chain is
    /// full or the pool has no block left.
    pub(crate) fn push(&mut self, head: &PageBuf, frag: Frag) -> Result<(), Frag> {
        let Some(block) = self.block(head.pool) else { return self.push_first(head, frag) };
        // SAFETY: I1, I3. Only this chain uses the block, and it is borrowed exclusively.
        let block = unsafe { &mut *block };
        match block.frags_mut().last_mut() {
            Some(last) => last.merge(frag).or_else(|frag| block.push(frag)),
            None => block.push(frag),
        }
    }

    fn push_first(&mut self, head: &PageBuf, frag: Frag) -> Result<(), Frag> {
        match self.start(head) {
            Some(list) => list.push(frag),
            None => Err(frag),
        }
    }

    /// Takes a block; `None` if the pool has none left. The caller pushes a buffer: no chain is empty with a
    /// block.
    #[inline]
    fn start(&mut self, head: &PageBuf) -> Option<&mut FragList> {
        let slot = take_block(head.pool)?;
        let block = head.pool.chains.block(slot).cast::<MaybeUninit<FragList>>();
        self.0 = NonZeroU32::new(slot + 1);
        // SAFETY: I1, I3. The block was just taken, and `FragList::start` needs no initialised bytes.
        Some(FragList::start(unsafe { &mut *block }))
    }

    /// The list of further buffers; `None` if it needs a block and the pool has none left. The caller pushes
    /// at least one buffer.
    #[inline(always)]
    pub(crate) fn list(&mut self, head: &PageBuf) -> Option<&mut FragList> {
        match self.block(head.pool) {
            // SAFETY: I1, I3. Only this chain uses the block, and it is borrowed exclusively.
            Some(block) => Some(unsafe { &mut *block }),
            None => self.start(head),
        }
    }

    pub(crate) fn pop(&mut self, head: &PageBuf) -> Option<Frag> {
        // SAFETY: I1, I3. Only this chain uses the block, and it is borrowed exclusively.
        let block = unsafe { &mut *self.block(head.pool)? };
        let frag = block.pop();
        if block.count == 0 {
            self.put_back(head.pool);
        }
        frag
    }

    /// Removes all buffers, in order, and puts the block back.
    #[inline(always)]
    pub(crate) fn end(&mut self, head: &PageBuf, each: impl FnMut(Frag)) {
        if !self.is_none() {
            self.end_each(head.pool, each);
        }
    }

    /// Separate, so that ending a packet of one buffer needs no stack frame.
    #[inline(never)]
    fn end_each(&mut self, pool: PoolPtr, each: impl FnMut(Frag)) {
        let Some(block) = self.block(pool) else { return };
        let mut ending = Ending { chain: self, pool, block, at: 0 };
        ending.by_ref().for_each(each);
        ManuallyDrop::new(ending).chain.put_back(pool); // its drop has nothing else to do
    }

    /// Puts the block back. Its buffers have other owners already.
    #[inline(always)]
    pub(crate) fn forget(&mut self, head: &PageBuf) {
        self.put_back(head.pool);
    }

    fn put_back(&mut self, pool: PoolPtr) {
        if let Some(slot) = self.0.take() {
            put_block(pool, slot.get() - 1);
        }
    }
}

fn take_block(pool: PoolPtr) -> Option<u32> {
    pool.owner_here().and_then(|owner| pool.own.chains.take(owner)).or_else(|| pool.chains.take())
}

fn put_block(pool: PoolPtr, slot: u32) {
    let kept = pool.owner_here().is_some_and(|owner| pool.own.chains.put(owner, slot));
    if !kept {
        pool.chains.put(slot);
    }
}

/// A chain whose buffers are being removed. If a callback panics, drop returns the other buffers and puts the
/// block back.
struct Ending<'a> {
    chain: &'a mut Chain,
    pool: PoolPtr,
    /// Looked up once.
    block: *const FragList,
    /// Entries below this were removed.
    at: u32,
}

impl Iterator for Ending<'_> {
    type Item = Frag;

    fn next(&mut self) -> Option<Frag> {
        // SAFETY: I1, I3. Only the borrowed chain uses the block, and its count is initialised.
        let block = unsafe { &*self.block };
        let entry = block.frags.get(self.at as usize).filter(|_| self.at < block.count)?;
        self.at += 1;
        // SAFETY: I1. The entry was initialised, and `at` is behind it now, so it is read out once.
        Some(unsafe { entry.assume_init_read() })
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
        self.chain.put_back(self.pool);
    }
}

const _: () = assert!(size_of::<Frag>() == 24, "17 of them are a block of 416 bytes");
const _: () = assert!(size_of::<FragList>() <= size_of::<ChainBlock>(), "a list lies in a block");
const _: () = assert!(align_of::<FragList>() <= align_of::<ChainBlock>(), "at the start of it");
const _: () = assert!(size_of::<Chain>() == 4, "a packet is 32 bytes");
