//! A packet that outlives the poll.
//!
//! What   an `XdpBuff` in any memory, for any thread: to wait in a transmit ring, or to be kept. Linux:
//!        `struct xdp_frame`.
//! How    a value. Linux writes its frame into the packet's headroom, where the device may write too.
//! Cost   48 bytes. Converting an `XdpBuff` moves the handle and allocates nothing.

// UNSAFETY: a frame is taken apart without a drop; one constructor takes memory on the caller's promise.
#![expect(unsafe_code)]

use std::iter;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;

use crate::buf::page_buf::PageBuf;
use crate::core::registry::{MemId, MemType};
use crate::holders::tag::Tag;
use crate::mem::dma::{DeviceAddr, DomainId, Mapping};
use crate::mem::page::PAGE_SIZE;
use crate::packet::chain::{Chain, Frag};
use crate::packet::endpoints;
use crate::packet::mem_model::MemModel;
use crate::packet::memory::{External, Memory, Page, SharedPage};
use crate::packet::xdp_buff::{XdpBuff, hard_end};
use crate::pool::bound::Bound;

/// A packet that outlives the poll: owned, `Send`, returns to its pool when dropped, on any thread. Its drop
/// is Linux's `xdp_return_frame`.
#[doc(alias = "xdp_frame")]
#[doc(alias = "xdp_return_frame")]
#[must_use = "a frame that is dropped at once is lost"]
#[derive(Debug)]
pub struct XdpFrame {
    memory: Memory,
    /// Offsets in the first buffer, like those of a [`XdpBuff`].
    meta: u32,
    data: u32,
    end: u32,
    /// Where the packet must end in the first buffer at the latest.
    hard_end: u32,
    chain: Chain,
}

const _: () = assert!(size_of::<XdpFrame>() <= 48, "three handles");

impl From<XdpBuff> for XdpFrame {
    /// Linux: `xdp_convert_buff_to_frame`, which fails if the headroom is too small for its header.
    #[inline]
    fn from(packet: XdpBuff) -> Self {
        let hard_end = hard_end(packet.buffer()) as u32;
        let (head, [meta, data, end], chain) = packet.into_parts();
        Self { memory: Memory::Pool(head), meta, data, end, hard_end, chain }
    }
}

impl XdpFrame {
    /// Creates a packet of `len` bytes at `offset` in a page of ordinary memory. `Err(page)` if it would end
    /// beyond the page.
    ///
    /// ```
    /// # use pagepool::{XdpFrame, MemType, Page};
    /// let mut page = Page::new();
    /// page.bytes_mut()[64..67].copy_from_slice(b"syn");
    /// let frame = XdpFrame::from_page(page, 64, 3).unwrap();
    /// assert_eq!((frame.data(), frame.headroom(), frame.mem_type()), (&b"syn"[..], 64, MemType::Page));
    /// ```
    #[doc(alias = "MEM_TYPE_PAGE_ORDER0")]
    pub fn from_page(page: Page, offset: usize, len: usize) -> Result<Self, Page> {
        match ends_within(PAGE_SIZE, offset, len) {
            Some(ends) => Ok(Self::of(Memory::Page(page), ends)),
            None => Err(page),
        }
    }

    /// Creates a packet of `len` bytes at `offset` in a shared page. It is read-only while the page has other
    /// owners. `Err(page)` if it would end beyond the page.
    ///
    /// ```
    /// # use pagepool::{XdpFrame, Page};
    /// let page = Page::new().into_shared();
    /// let twice = [0, 2048].map(|half| XdpFrame::from_shared(page.clone(), half, 60).unwrap());
    /// assert_eq!(twice[1].len(), 60);
    /// ```
    #[doc(alias = "MEM_TYPE_PAGE_SHARED")]
    pub fn from_shared(page: SharedPage, offset: usize, len: usize) -> Result<Self, SharedPage> {
        match ends_within(PAGE_SIZE, offset, len) {
            Some(ends) => Ok(Self::of(Memory::Shared(page), ends)),
            None => Err(page),
        }
    }

    /// Creates a packet of `len` bytes at `offset` in memory of the caller. The model's callback receives the
    /// memory when the frame is dropped. `None`, and the caller keeps the memory, if the packet would end
    /// beyond it, it has 4 GiB or more, or the model has no callback.
    ///
    /// ```
    /// # use pagepool::{XdpFrame, MemModel, Registry};
    /// # use std::ptr::NonNull;
    /// // SAFETY (of the callback's own): it is given what `Box::leak` gave, once.
    /// let free = |memory: NonNull<[u8]>| drop(unsafe { Box::from_raw(memory.as_ptr()) });
    /// let model = MemModel::external(&Registry::new(), "heap", free)?;
    /// let memory = NonNull::from(Box::leak(vec![7u8; 2048].into_boxed_slice()));
    /// // SAFETY: the memory is initialised, and nobody's until it is given back.
    /// let frame = unsafe { XdpFrame::from_external(&model, memory, 256, 60) }.unwrap();
    /// assert_eq!(frame.data(), [7; 60]);
    /// drop(frame); // and the memory with it
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    ///
    /// # Safety
    /// * The memory is initialised and stays valid until the callback receives it.
    /// * No other code touches it until then.
    /// * Any thread may touch it, and give it back.
    #[doc(alias = "MEM_TYPE_XSK_BUFF_POOL")]
    pub unsafe fn from_external(
        model: &MemModel,
        memory: NonNull<[u8]>,
        offset: usize,
        len: usize,
    ) -> Option<Self> {
        let ends = ends_within(memory.len(), offset, len)?;
        // SAFETY: I1. The caller's promise is that of `External::new`.
        let external = unsafe { External::new(model, memory) }?;
        Some(Self::of(Memory::External(external), ends))
    }

    fn of(memory: Memory, [data, end, hard_end]: [u32; 3]) -> Self {
        Self { memory, meta: data, data, end, hard_end, chain: Chain::NONE }
    }

    /// Copies the packet, its metadata, and as much headroom as fits, to one page of ordinary memory. `None`
    /// if the packet does not fit or the CPU cannot read it. Linux: `xdpf_clone`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, MemType, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    /// packet.data_mut().fill(7);
    /// let copy = XdpFrame::from(packet).copy_to_page().unwrap();
    /// assert_eq!((copy.data(), copy.mem_type(), pool.inflight().out), (&[7; 60][..], MemType::Page, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "xdpf_clone")]
    pub fn copy_to_page(&self) -> Option<XdpFrame> {
        let (meta_len, len) = ((self.data - self.meta) as usize, self.len());
        let room = PAGE_SIZE.checked_sub(meta_len + len)?;
        let mut page = Page::new();
        let meta = room.min(self.meta as usize);
        let mut at = meta;
        for part in iter::once(self.meta()).chain(self.segments().map(|segment| segment.data())) {
            page.bytes_mut().get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        if at < meta + meta_len + len {
            return None; // unreadable memory gives less than its length
        }
        let mut copy = Self::of(Memory::Page(page), [(meta + meta_len) as u32, at as u32, PAGE_SIZE as u32]);
        copy.meta = meta as u32;
        Some(copy)
    }

    /// Converts back into a packet inside the poll, for a handler that runs elsewhere. `Err(frame)` if it is
    /// not in a pool's memory. Linux: `xdp_convert_frame_to_buff`.
    #[doc(alias = "xdp_convert_frame_to_buff")]
    #[inline]
    pub fn into_buff(self) -> Result<XdpBuff, XdpFrame> {
        if self.buffer().is_none() {
            return Err(self);
        }
        let (memory, ends, chain) = self.into_parts();
        let Memory::Pool(head) = memory else { unreachable!("I1: it was looked at, and nobody else has it") };
        Ok(XdpBuff::from_parts(head, ends, chain))
    }

    /// Takes the frame apart without a drop. The caller ends the chain.
    #[inline]
    pub(crate) fn into_parts(self) -> (Memory, [u32; 3], Chain) {
        let mut this = ManuallyDrop::new(self);
        let chain = std::mem::take(&mut this.chain);
        // SAFETY: I1. `this` is never dropped, so the memory is read out once.
        let memory = unsafe { std::ptr::read(&this.memory) };
        (memory, [this.meta, this.data, this.end], chain)
    }

    /// Takes the frame apart and ends its chain: `each` gets the further buffers in order. Returns the first
    /// buffer (the memory, if it belongs to no pool), and where the packet is in it.
    #[inline]
    pub(crate) fn take_apart(self, each: impl FnMut(Frag)) -> (Result<PageBuf, Memory>, Range<u32>) {
        let (memory, [_, data, end], mut chain) = self.into_parts();
        let Memory::Pool(head) = memory else { return (Err(memory), data..end) };
        chain.end(&head, each);
        (Ok(head), data..end)
    }

    /// The first buffer, if it belongs to a pool.
    #[inline]
    pub fn buffer(&self) -> Option<&PageBuf> {
        if let Memory::Pool(head) = &self.memory { Some(head) } else { None }
    }

    /// Memory of the first buffer.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Type of the first buffer's memory.
    pub fn mem_type(&self) -> MemType {
        self.memory.mem_type()
    }

    /// Memory id of the first buffer; `None` for pages made without a model.
    pub fn mem_id(&self) -> Option<MemId> {
        self.memory.mem_id()
    }

    /// The first domain of the first buffer's pool; `None` for memory that no device can access.
    pub fn domain(&self) -> Option<DomainId> {
        self.memory.domain()
    }

    /// Bytes of the packet, in all its buffers.
    #[inline]
    pub fn len(&self) -> usize {
        let head = (self.end - self.data) as usize;
        if self.chain.is_none() {
            head
        } else {
            head + self.buffer().map_or(0, |first| self.chain.len(first))
        }
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the packet has several buffers. Linux: `xdp_frame_has_frags`.
    #[inline]
    pub fn has_frags(&self) -> bool {
        !self.chain.is_none()
    }

    /// Number of buffers.
    #[inline]
    pub fn segment_count(&self) -> usize {
        1 + self.frags().len()
    }

    /// The packet's bytes in its first buffer; empty if the CPU cannot read them.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.memory.bytes().map_or(&[], |bytes| &bytes[self.data as usize..self.end as usize])
    }

    /// The packet's bytes in its first buffer, mutable; empty if the CPU cannot access them or the page has
    /// other owners.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut().map_or(&mut [], |bytes| &mut bytes[self.data as usize..self.end as usize])
    }

    /// Swaps sender and receiver, see [`XdpBuff::swap_endpoints`]; false also for a page with other owners.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff, XdpFrame};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    /// packet.data_mut().fill(0);
    /// assert!(!XdpFrame::from(packet).swap_endpoints(), "no IP");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn swap_endpoints(&mut self) -> bool {
        endpoints::swap(self.data_mut())
    }

    /// The metadata, right before the packet; empty if the CPU cannot read it.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    /// packet.adjust_meta(-4).unwrap();
    /// packet.meta_mut().copy_from_slice(b"rss1");
    /// assert_eq!(XdpFrame::from(packet).meta(), b"rss1");
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn meta(&self) -> &[u8] {
        self.memory.bytes().map_or(&[], |bytes| &bytes[self.meta as usize..self.data as usize])
    }

    /// The further buffers, in order.
    #[inline]
    pub fn frags(&self) -> &[Frag] {
        self.buffer().map_or(&[], |head| self.chain.frags(head))
    }

    /// Tags all buffers, of any pools, with their user: see [`PageBuf::set_tag`]. Memory outside of pools has
    /// no tag.
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        if let Memory::Pool(head) = &mut self.memory {
            head.set_tag(tag);
            self.chain.frags_mut(head).iter_mut().for_each(|frag| frag.set_tag(tag));
        }
    }

    /// Bytes behind the packet in its first buffer into which it can grow.
    #[inline]
    pub fn tailroom(&self) -> usize {
        (self.hard_end - self.end) as usize
    }

    /// Bytes before the packet's metadata.
    pub fn headroom(&self) -> usize {
        self.meta as usize
    }

    /// Returns the frame to the pool's cache, inside its poll; a [`NoDirectRecycle`](crate::NoDirectRecycle)
    /// scope forbids the cache. Further buffers of other pools return to those. `Err(frame)` if it is not of
    /// this pool. Linux: `xdp_return_frame_rx_napi`.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let frame = XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap());
    /// frame.put_in_poll(&pool).unwrap();
    /// assert_eq!(pool.stats().recycle_cached, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "xdp_return_frame_rx_napi")]
    #[inline]
    pub fn put_in_poll(self, poll: &Bound) -> Result<(), XdpFrame> {
        match self.buffer() {
            Some(head) if head.pool == poll.ptr() => drop(self),
            _ => return Err(self),
        }
        Ok(())
    }

    /// Returns the buffers through the locked rings of their pools, on any thread: see [`PageBuf::put_ring`].
    /// Memory outside of pools returns as usual.
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
        let (memory, _, mut chain) = self.into_parts();
        if let Memory::Pool(head) = memory {
            chain.end(&head, |frag| frag.into_buffer().put_ring());
            head.put_ring();
        }
    }

    /// All buffers, as a device sends them.
    #[inline]
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let (offset, len) = (self.data as usize, (self.end - self.data) as usize);
        let within = match &self.memory {
            Memory::Pool(buffer) => Within::Pool(buffer),
            other => Within::Other(other),
        };
        iter::once(Segment { within, offset, len }).chain(self.frags().iter().map(|frag| Segment {
            within: Within::Pool(frag.buffer()),
            offset: frag.offset(),
            len: frag.len(),
        }))
    }
}

impl Drop for XdpFrame {
    #[inline]
    fn drop(&mut self) {
        if !self.chain.is_none()
            && let Memory::Pool(head) = &self.memory
        {
            self.chain.end(head, drop);
        }
    }
}

/// Start and end of a packet of `len` bytes at `offset` in memory of `size` bytes, and `size`.
fn ends_within(size: usize, offset: usize, len: usize) -> Option<[u32; 3]> {
    let end = offset.checked_add(len).filter(|&end| end <= size)?;
    Some([offset as u32, end as u32, u32::try_from(size).ok()?])
}

/// One of a frame's buffers, and the range of its data.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    within: Within<'a>,
    offset: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Within<'a> {
    Pool(&'a PageBuf),
    Other(&'a Memory),
}

impl<'a> Segment<'a> {
    /// The buffer, if it belongs to a pool.
    #[inline]
    pub fn buffer(&self) -> Option<&'a PageBuf> {
        if let Within::Pool(buffer) = self.within { Some(buffer) } else { None }
    }

    /// Offset of the data in the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of data.
    #[expect(clippy::len_without_is_empty, reason = "the packet says whether it is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The data; empty if the CPU cannot read it.
    pub fn data(&self) -> &'a [u8] {
        let bytes = match self.within {
            Within::Pool(buffer) => buffer.bytes(),
            Within::Other(memory) => memory.bytes(),
        };
        bytes.map_or(&[], |bytes| &bytes[self.offset..self.offset + self.len])
    }

    /// Device address of the data, if it is mapped in that domain: see [`PageBuf::dma_addr_in`]. `None` for
    /// memory outside of pools.
    #[inline]
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let at = self.buffer()?.dma_addr_in(domain)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }

    /// Device address of the data by a mapping of the caller: see [`PageBuf::dma_addr_by`].
    #[inline]
    pub fn dma_addr_by(&self, mapping: &Mapping) -> Option<DeviceAddr> {
        let at = self.buffer()?.dma_addr_by(mapping)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }

    /// Hands the data to the device, in every non-coherent domain.
    pub fn sync_for_device(&self) {
        if let Some(buffer) = self.buffer() {
            buffer.sync_for_device(self.offset, self.len);
        }
    }
}
