//! A packet that outlives the poll.
//!
//! What   an `XdpBuff` for any thread: to wait in a transmit ring, or to be kept. Linux: `struct xdp_frame`.
//! How    a value. Linux writes its frame into the packet's headroom, where the device may write too.
//! Cost   32 bytes. Converting an `XdpBuff` moves the handle and allocates nothing.

use std::iter;
use std::ops::{Deref, DerefMut, Range};

use crate::buf::page_buf::PageBuf;
use crate::mem::dma::{DeviceAddr, DomainId};
use crate::packet::chain::Frag;
use crate::packet::xdp_buff::{XdpBuff, hard_end};

/// A packet that outlives the poll: owned, `Send`, returns to its pool when dropped, on any thread. Its drop
/// is Linux's `xdp_return_frame`, and on the thread of the pool's owner `xdp_return_frame_rx_napi`. A
/// [`NoDirectRecycle`](crate::NoDirectRecycle) scope forbids the cache.
///
/// It has all methods of the [`XdpBuff`] that it was.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena)?.bind();
/// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
/// packet.adjust_meta(-4).unwrap();
/// packet.meta_mut().copy_from_slice(b"rss1");
/// let frame = XdpFrame::from(packet);
/// assert_eq!((frame.meta(), frame.len()), (&b"rss1"[..], 60));
/// drop(frame);
/// assert_eq!(pool.stats().recycle_cached, 1);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "xdp_frame")]
#[doc(alias = "xdp_return_frame")]
#[doc(alias = "xdp_return_frame_rx_napi")]
#[must_use = "a frame that is dropped at once is lost"]
#[derive(Debug)]
pub struct XdpFrame(XdpBuff);

impl From<XdpBuff> for XdpFrame {
    /// Linux: `xdp_convert_buff_to_frame`, which fails if the headroom is too small for its header.
    #[inline]
    fn from(packet: XdpBuff) -> Self {
        Self(packet)
    }
}

impl Deref for XdpFrame {
    type Target = XdpBuff;

    #[inline(always)]
    fn deref(&self) -> &XdpBuff {
        &self.0
    }
}

impl DerefMut for XdpFrame {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut XdpBuff {
        &mut self.0
    }
}

impl XdpFrame {
    /// Converts back into a packet inside the poll, for a handler that runs elsewhere. Linux:
    /// `xdp_convert_frame_to_buff`.
    #[doc(alias = "xdp_convert_frame_to_buff")]
    #[inline]
    pub fn into_buff(self) -> XdpBuff {
        self.0
    }

    /// Takes the frame apart and ends its chain: `each` gets the further buffers in order. Returns the first
    /// buffer, where the packet is in it, and where it must end at the latest.
    #[inline]
    pub(crate) fn take_apart(self, each: impl FnMut(Frag)) -> (PageBuf, Range<u32>, u32) {
        let (head, [_, data, end], mut chain) = self.0.into_parts();
        let hard_end = hard_end(&head) as u32;
        chain.end(&head, each);
        (head, data..end, hard_end)
    }

    /// Number of buffers.
    #[inline]
    pub fn segment_count(&self) -> usize {
        1 + self.frags().len()
    }

    /// All buffers, as a device sends them.
    #[inline]
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let (offset, len) = self.span();
        iter::once(Segment { buffer: self.buffer(), offset, len }).chain(self.frags().iter().map(Segment::of))
    }

    /// Returns the buffers through the locked rings of their pools, on any thread: see [`PageBuf::put_ring`].
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap()).put_ring();
    /// assert_eq!(pool.stats().recycle_ring, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn put_ring(self) {
        let (head, _, mut chain) = self.0.into_parts();
        chain.end(&head, |frag| frag.into_buffer().put_ring());
        head.put_ring();
    }
}

/// One of a frame's buffers, and the range of its data.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The buffer.
    pub buffer: &'a PageBuf,
    /// Offset of the data in the buffer.
    pub offset: usize,
    /// Bytes of data.
    pub len: usize,
}

impl<'a> Segment<'a> {
    #[inline]
    fn of(frag: &'a Frag) -> Self {
        Self { buffer: frag.buffer(), offset: frag.offset(), len: frag.len() }
    }

    /// The data; empty if the CPU cannot read it.
    pub fn data(&self) -> &'a [u8] {
        self.buffer.bytes().map_or(&[], |bytes| &bytes[self.offset..self.offset + self.len])
    }

    /// Device address of the data, if it is mapped in that domain: see [`PageBuf::dma_addr_in`].
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let at = self.buffer.dma_addr_in(domain)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }
}
