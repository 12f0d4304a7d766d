//! A packet that outlives the poll.
//!
//! What   as a `XdpBuff`, but of any memory, and for any thread: it waits in a transmit ring, goes to another
//!        thread, is kept. Linux: `struct xdp_frame`.
//! How    a value. Linux writes its frame into the packet's own headroom, where the device may write too.
//! Cost   48 bytes. Making one of a `XdpBuff` moves the handle and allocates nothing.

// UNSAFETY: a frame is taken apart without being dropped; one constructor takes memory on the caller's word.
#![expect(unsafe_code)]

use std::iter;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::buf::page_buf::PageBuf;
use crate::holders::tag::Tag;
use crate::home::registry::{MemId, MemType};
use crate::mem::dma::{DeviceAddr, DomainId, Mapping};
use crate::mem::page::PAGE_SIZE;
use crate::packet::chain::{Chain, Frag};
use crate::packet::endpoints;
use crate::packet::mem_model::MemModel;
use crate::packet::memory::{External, Memory, Page, SharedPage};
use crate::packet::xdp_buff::{XdpBuff, hard_end};
use crate::pool::bound::Bound;

/// A packet that outlives the poll: owned, `Send`, returned to its pool when dropped, on any thread. Dropping
/// it is `xdp_return_frame`.
#[doc(alias = "xdp_frame")]
#[doc(alias = "xdp_return_frame")]
#[must_use = "a frame that is dropped at once is lost"]
#[derive(Debug)]
pub struct XdpFrame {
    memory: Memory,
    /// Offsets in the first buffer, as in a [`XdpBuff`].
    meta: u32,
    data: u32,
    end: u32,
    /// Behind the last byte of the first buffer that the packet may have.
    hard_end: u32,
    chain: Chain,
}

const _: () = assert!(size_of::<XdpFrame>() <= 48, "three handles");

impl From<XdpBuff> for XdpFrame {
    /// Linux: `xdp_convert_buff_to_frame`, which fails where the headroom is too small for its header.
    #[inline]
    fn from(packet: XdpBuff) -> Self {
        let hard_end = hard_end(packet.buffer()) as u32;
        let (head, [meta, data, end], chain) = packet.into_parts();
        Self { memory: Memory::Pool(head), meta, data, end, hard_end, chain }
    }
}

impl XdpFrame {
    /// A packet of `len` bytes at `offset` in a page of ordinary memory. Gives the page back if that is
    /// beyond it.
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

    /// The same in a page that is shared, which can be read only while others have it.
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

    /// The same in memory of the caller's, which the model's callback is given when the frame is dropped.
    /// `None`, and the memory stays with the caller, if the packet is beyond it, it has 4 GiB or more, or the
    /// model has no callback.
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
    /// * The memory is initialised, and stays there until the callback is given it.
    /// * Nobody else touches it until then.
    /// * Any thread may touch it, and give it back.
    #[doc(alias = "MEM_TYPE_XSK_BUFF_POOL")]
    pub unsafe fn from_external(
        model: &MemModel,
        memory: NonNull<[u8]>,
        offset: usize,
        len: usize,
    ) -> Option<Self> {
        let ends = ends_within(memory.len(), offset, len)?;
        // SAFETY: I1. What the caller promised.
        let external = unsafe { External::new(model, memory) }?;
        Some(Self::of(Memory::External(external), ends))
    }

    fn of(memory: Memory, [data, end, hard_end]: [u32; 3]) -> Self {
        Self { memory, meta: data, data, end, hard_end, chain: Chain::NONE }
    }

    /// A copy in one page of ordinary memory: the packet, its metadata, and as much headroom as there is room
    /// for. `None` for a packet that does not fit, and for memory that the CPU cannot read. Linux:
    /// `xdpf_clone`.
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
            return None; // memory that cannot be read gives less than its length
        }
        let mut copy = Self::of(Memory::Page(page), [(meta + meta_len) as u32, at as u32, PAGE_SIZE as u32]);
        copy.meta = meta as u32;
        Some(copy)
    }

    /// The packet inside a poll again, for a handler that runs elsewhere; only pool memory can be that.
    /// Linux: `xdp_convert_frame_to_buff`.
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

    /// Takes the packet apart without dropping it; the caller ends the chain.
    #[inline]
    pub(crate) fn into_parts(self) -> (Memory, [u32; 3], Chain) {
        let mut this = ManuallyDrop::new(self);
        let chain = std::mem::take(&mut this.chain);
        // SAFETY: I1. `this` is never dropped, so the memory is read out once.
        let memory = unsafe { std::ptr::read(&this.memory) };
        (memory, [this.meta, this.data, this.end], chain)
    }

    /// The first buffer, if it is a pool's.
    #[inline]
    pub fn buffer(&self) -> Option<&PageBuf> {
        if let Memory::Pool(head) = &self.memory { Some(head) } else { None }
    }

    /// What the first buffer is.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What kind of memory its first buffer is.
    pub fn mem_type(&self) -> MemType {
        self.memory.mem_type()
    }

    /// The memory id that its first buffer carries; `None` for pages that were made without a model.
    pub fn mem_id(&self) -> Option<MemId> {
        self.memory.mem_id()
    }

    /// The first domain of its first buffer's pool; `None` for memory that no device knows.
    pub fn domain(&self) -> Option<DomainId> {
        self.memory.domain()
    }

    /// Bytes of the packet, over all its buffers.
    #[inline]
    pub fn len(&self) -> usize {
        let head = (self.end - self.data) as usize;
        if self.chain.is_none() {
            head
        } else {
            head + self.buffer().map_or(0, |first| self.chain.len(first))
        }
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has more than one buffer. Linux: `xdp_frame_has_frags`.
    #[inline]
    pub fn has_frags(&self) -> bool {
        !self.chain.is_none()
    }

    /// How many buffers it has.
    #[inline]
    pub fn segment_count(&self) -> usize {
        1 + self.frags().len()
    }

    /// Bytes of the packet in its first buffer; empty for memory that the CPU cannot read.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.memory.bytes().map_or(&[], |bytes| &bytes[self.data as usize..self.end as usize])
    }

    /// The same, for writing; empty for a page that others share, too.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut().map_or(&mut [], |bytes| &mut bytes[self.data as usize..self.end as usize])
    }

    /// As [`XdpBuff::swap_endpoints`]; false for a page that others share, too.
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

    /// The metadata, right before the packet; empty for memory that the CPU cannot read.
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

    /// Names the holder of all its buffers, of whichever pools: see [`PageBuf::set_tag`]. Memory that is not
    /// a pool's has no tag.
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        if let Memory::Pool(head) = &mut self.memory {
            head.set_tag(tag);
            self.chain.frags_mut(head).iter_mut().for_each(|frag| frag.set_tag(tag));
        }
    }

    /// Bytes behind the packet in its first buffer that it could still grow by.
    pub fn tailroom(&self) -> usize {
        (self.hard_end - self.end) as usize
    }

    /// Bytes before the packet's metadata.
    pub fn headroom(&self) -> usize {
        self.meta as usize
    }

    /// Returns the frame inside the poll of its pool, as dropping it there would: into the pool's cache,
    /// unless a [`NoDirectRecycle`](crate::NoDirectRecycle) scope forbids it. Further buffers of other pools
    /// return to those. A frame of another pool is given back. Linux: `xdp_return_frame_rx_napi`.
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

    /// Returns its buffers through the locked ring of each of its pools, on any thread: see
    /// [`PageBuf::put_ring`]. Memory that is not a pool's is returned as usual.
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

    /// All its buffers, as a device is to send them.
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

/// Where a packet of `len` bytes at `offset` begins and ends in memory of `size` bytes, and where that ends.
fn ends_within(size: usize, offset: usize, len: usize) -> Option<[u32; 3]> {
    let end = offset.checked_add(len).filter(|&end| end <= size)?;
    Some([offset as u32, end as u32, u32::try_from(size).ok()?])
}

/// One of a frame's buffers, and where in it the data lies.
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
    /// The buffer, if it is a pool's.
    #[inline]
    pub fn buffer(&self) -> Option<&'a PageBuf> {
        if let Within::Pool(buffer) = self.within { Some(buffer) } else { None }
    }

    /// Where the data begins in the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of data.
    #[expect(clippy::len_without_is_empty, reason = "the packet says whether it is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The data; empty for memory that the CPU cannot read.
    pub fn data(&self) -> &'a [u8] {
        let bytes = match self.within {
            Within::Pool(buffer) => buffer.bytes(),
            Within::Other(memory) => memory.bytes(),
        };
        bytes.map_or(&[], |bytes| &bytes[self.offset..self.offset + self.len])
    }

    /// Where that device finds the data, if it is mapped there: see [`PageBuf::dma_addr_in`]. Memory that is
    /// not a pool's is mapped nowhere.
    #[inline]
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let at = self.buffer()?.dma_addr_in(domain)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }

    /// Where the device finds the data by a mapping that the caller keeps: see [`PageBuf::dma_addr_by`].
    #[inline]
    pub fn dma_addr_by(&self, mapping: &Mapping) -> Option<DeviceAddr> {
        let at = self.buffer()?.dma_addr_by(mapping)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }

    /// Hands the data to the device, in every domain that is not coherent.
    pub fn sync_for_device(&self) {
        if let Some(buffer) = self.buffer() {
            buffer.sync_for_device(self.offset, self.len);
        }
    }
}
