//! Frames of any pools, returned together.
//!
//! What   up to 64 buffers in the caller's memory: page numbers for whole pages of the first pool, handles
//!        for others. A flush, or a full bulk, visits each pool once: one owner check, and one lane or lock.
//!        Linux: `struct xdp_frame_bulk`.
//! Who    any thread, one at a time. The owner is checked when the buffers return, not when they are pushed.
//! Order  a push empties the frame's chain first, while its first buffer keeps the pool in which the chain
//!        lies.
//! Cost   1.3 KiB of the caller's memory; no allocation. Returning 64 pages of one pool on another thread: one
//!        push into a lane (lane.rs), or one lock. If one thread fills a bulk and another flushes it, five
//!        cache lines move for 64 pages of one pool: 4 bytes per frame.

// UNSAFETY: buffers lie in memory that is initialised only up to their number.
#![expect(unsafe_code)]

use std::fmt;
use std::mem::{MaybeUninit, offset_of};

use crate::buf::batch::Batch;
use crate::buf::bulk::{GivenUp, put_parted, taken};
use crate::buf::page_buf::PageBuf;
use crate::holders::tag::Tag;
use crate::packet::chain::Chain;
use crate::packet::xdp_buff::XdpBuff;
use crate::packet::xdp_frame::XdpFrame;

/// Collects up to 64 buffers of frames, of any pools, and returns them together. Dropping it flushes it.
/// Linux: `xdp_frame_bulk`, without its limit of 16.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, XdpFrameBulk, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let mut completed = XdpFrameBulk::new();
/// for _ in 0..3 {
///     completed.push(XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap()));
/// }
/// assert_eq!((completed.len(), pool.stats().recycle_cached), (3, 0));
/// completed.flush();
/// assert_eq!((completed.len(), pool.stats().recycle_cached), (0, 3));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "xdp_frame_bulk")]
#[repr(C, align(64))]
pub struct XdpFrameBulk {
    others_len: usize,
    /// Whole pages of one pool.
    plain: Batch,
    /// All others: fragments, pages of other pools, pages that may have a [`PageRef`](crate::PageRef).
    others: [MaybeUninit<PageBuf>; Self::MAX],
}

const _: () = assert!(offset_of!(XdpFrameBulk, others) <= 5 * 64, "what mostly travels");

impl fmt::Debug for XdpFrameBulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpFrameBulk").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Default for XdpFrameBulk {
    fn default() -> Self {
        Self::new()
    }
}

impl XdpFrameBulk {
    /// Most buffers that it collects.
    pub const MAX: usize = Batch::MAX;

    /// Creates an empty bulk.
    #[doc(alias = "xdp_frame_bulk_init")]
    #[inline]
    pub const fn new() -> Self {
        Self { plain: Batch::new(), others: [const { MaybeUninit::uninit() }; Self::MAX], others_len: 0 }
    }

    /// Number of collected buffers, all buffers of a frame counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.plain.len() + self.others_len
    }

    /// Whether it has no buffers.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Collects a frame's further buffers, then its first. Flushes first if there is no room. Linux:
    /// `xdp_return_frame_bulk`.
    #[doc(alias = "xdp_return_frame_bulk")]
    #[inline]
    pub fn push(&mut self, frame: XdpFrame) {
        let (head, _, chain) = frame.into_buff().into_parts();
        if chain.is_none() { self.push_buffer(head) } else { self.push_several(head, chain) }
    }

    /// Separate, so that a frame in one buffer stays in registers.
    #[inline(never)]
    fn push_several(&mut self, head: PageBuf, mut chain: Chain) {
        chain.end(&head, |frag| self.push_buffer(frag.into_buffer()));
        self.push_buffer(head);
    }

    /// Collects a single buffer.
    #[inline(always)]
    pub fn push_buffer(&mut self, buffer: PageBuf) {
        if self.len() == Self::MAX {
            self.flush_full();
        }
        if let Err(other) = self.plain.push(buffer) {
            self.others[self.others_len].write(other);
            self.others_len += 1;
        }
    }

    /// Tags all collected buffers with their user: see [`PageBuf::set_tag`].
    pub fn set_tag(&mut self, tag: Tag) {
        self.plain.set_tag(tag);
        for other in &mut self.others[..self.others_len] {
            // SAFETY: I1. The first `others_len` entries are initialised.
            unsafe { other.assume_init_mut() }.set_tag(tag);
        }
    }

    /// Returns all collected buffers. Linux: `xdp_flush_frame_bulk`.
    #[doc(alias = "xdp_flush_frame_bulk")]
    #[inline]
    pub fn flush(&mut self) {
        self.plain.put();
        if self.others_len > 0 {
            self.flush_others();
        }
    }

    /// Cold: runs once in 64 buffers.
    #[cold]
    #[inline(never)]
    fn flush_full(&mut self) {
        self.flush();
    }

    #[inline(never)]
    fn flush_others(&mut self) {
        let len = std::mem::replace(&mut self.others_len, 0);
        let start = self.others.as_mut_ptr().cast::<PageBuf>();
        // SAFETY: I1. The first `len` entries are initialised, and not counted any more.
        let waiting = unsafe { std::slice::from_raw_parts_mut(start, len) };
        // SAFETY: I1. They are not counted any more, so each is returned once.
        unsafe { put_parted(waiting) };
    }

    /// Returns all collected buffers through the locked rings of their pools, with one lock per buffer, on
    /// any thread. For measurements, and for code that must not touch the cache.
    pub fn put_ring(&mut self) {
        while let Some(last) = self.plain.pop() {
            last.put_ring();
        }
        while let Some(last) = self.others_len.checked_sub(1) {
            self.others_len = last;
            // SAFETY: I1. It is initialised, and not counted any more, so it is read out once.
            unsafe { self.others[last].assume_init_read() }.put_ring();
        }
    }
}

impl Drop for XdpFrameBulk {
    #[inline]
    fn drop(&mut self) {
        self.flush();
    }
}

/// Returns packets of any pools, mixed; empties the vector but keeps its capacity. Works like
/// [`put_bulk`](crate::put_bulk) of their first buffers. Any thread.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, XdpBuff, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let mut packets: Vec<_> =
///     (0..3).map(|_| XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap()).collect();
/// pagepool::put_packets(&mut packets);
/// assert_eq!((packets.len(), pool.stats().recycle_cached), (0, 3));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[inline]
pub fn put_packets(packets: &mut Vec<XdpBuff>) {
    // SAFETY: I1. They were taken out of the vector, and are not read again.
    let mut rest = unsafe { GivenUp::new(taken(packets)) };
    while let Some(chunk) = rest.next_chunk() {
        if !put_plain(chunk) {
            // SAFETY: I1. They were given up, and the line above took none.
            unsafe { put_singly(chunk) };
        }
    }
}

/// Puts all packets into the cache, if they are whole pages of one pool without further buffers or anything
/// to look up, and the pool is this thread's and has room. At least one.
#[inline(always)]
fn put_plain(packets: &[XdpBuff]) -> bool {
    let pool = packets[0].buffer().pool;
    let Some(owner) = pool.owner_here() else { return false };
    if packets[0].buffer().is_frag() || !pool.own.cache.has_fast_room(packets.len()) {
        return false;
    }
    let (mut pools, mut bits, mut single) = (0, 0, true);
    let put = pool.own.cache.fill(owner, packets.len(), |space| {
        for (packet, number) in packets.iter().zip(space) {
            let (head, alone) = packet.head();
            pools |= head.pool.addr() ^ pool.addr();
            bits |= head.bits.bits();
            single &= alone;
            *number = head.bits.whole_page().0;
        }
        if pools == 0 && bits >> 32 == 0 && single { packets.len() } else { 0 }
    });
    pool.own.counts.recycle_cached.add(put as u64);
    put > 0
}

/// # Safety
/// The caller gives the packets up: it neither reads nor drops them again.
#[inline(never)]
unsafe fn put_singly(packets: &mut [XdpBuff]) {
    let mut bulk = XdpFrameBulk::new();
    // SAFETY: I1. The caller gives them up.
    let mut rest = unsafe { GivenUp::new(packets) };
    while let Some(packet) = rest.next_one() {
        bulk.push_buffer(packet.into_buffer());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::sync::LOCKS_TAKEN;
    use crate::{Bound, DeviceMemory, NodeId, Pool, PoolParams, XdpBuff};

    /// Number of locks taken to return interleaved pages of three pools without lanes on another thread.
    fn locks(put: impl FnOnce(Vec<XdpFrame>) + Send) -> u64 {
        let pools: Vec<Bound> = (0..3)
            .map(|_| {
                let memory = DeviceMemory::new("64 pages", 64 << 12, NodeId(0)).expect("small");
                Pool::new(PoolParams { max_lanes: 0, ..Default::default() }, memory).expect("plain").bind()
            })
            .collect();
        let frame = |at: usize| XdpBuff::received(pools[at % 3].alloc_page().expect("64 are free"), 60);
        let frames: Vec<XdpFrame> = (0..64).map(|at| frame(at).expect("it fits").into()).collect();
        let counted = move || {
            let before = LOCKS_TAKEN.get();
            put(frames);
            LOCKS_TAKEN.get() - before
        };
        let taken = std::thread::scope(|threads| threads.spawn(counted).join().expect("it does not panic"));
        assert!(pools.iter().all(|pool| pool.inflight().out == 0));
        taken
    }

    fn in_bulk(frames: Vec<XdpFrame>) {
        let mut bulk = XdpFrameBulk::new();
        frames.into_iter().for_each(|frame| bulk.push(frame));
    }

    #[test]
    fn each_pool_is_locked_once_for_64_buffers() {
        assert_eq!(locks(in_bulk), 3);
        assert_eq!(locks(drop), 64);
        let first = |frame: XdpFrame| frame.into_buff().into_parts().0;
        let bulk = |put: fn(&mut Vec<PageBuf>)| {
            move |frames: Vec<XdpFrame>| put(&mut frames.into_iter().map(first).collect())
        };
        assert_eq!(locks(bulk(crate::put_bulk)), 3);
        assert_eq!(locks(bulk(crate::put_ring_bulk)), 3);
    }
}
