//! A packet inside the poll.
//!
//! What   a buffer, the packet's place in it, room before and behind it, metadata right before it, and
//!        further buffers if one is not enough. Linux: `struct xdp_buff`.
//! Who    made by the thread that polls a device, read and changed by a handler. It is dropped (its buffers
//!        return at once), or becomes an [`XdpFrame`](crate::XdpFrame), which outlives the poll.
//! Why    the limits for moving its ends are those of `bpf_xdp_adjust_head`, `bpf_xdp_adjust_tail` and
//!        `bpf_xdp_adjust_meta` (net/core/filter.c, v7.3), except one: Linux reserves 40 bytes of headroom
//!        for its frame. Here a frame is a value, and all headroom is usable.
//! Cost   32 bytes. A packet in one buffer costs nothing more; for others see `chain.rs`.

// UNSAFETY: a packet that becomes a frame is taken apart without a drop; its bytes are reached by address; one
// prefetch instruction.
#![expect(unsafe_code)]

use std::mem::ManuallyDrop;

use crate::buf::page_buf::PageBuf;
use crate::buf::split::SplitError;
use crate::core::pool_core::PoolPtr;
use crate::holders::tag::Tag;
use crate::packet::chain::{Chain, Frag, FragList};
use crate::packet::endpoints;

/// Bytes of an Ethernet header: moving the ends of a packet leaves at least these. Linux: `ETH_HLEN`.
pub const ETH_HEADER: usize = 14;

/// Most bytes of metadata. Linux: what fits in `meta_len`, a byte, in steps of 4.
pub const MAX_META: usize = 252;

/// Why the ends of a packet were not moved. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdjustError {
    /// Too little room before the packet, behind it, or in its last buffer. Linux: `-EINVAL`.
    NoRoom,
    /// Less than an Ethernet header would be left (in the first buffer, if the head moves). Linux: `-EINVAL`.
    TooShort,
    /// Metadata must be a multiple of 4 bytes, and at most 252. Linux: `-EACCES`.
    BadMeta,
}

impl std::fmt::Display for AdjustError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoRoom => "not enough room: set a larger headroom or tailroom in the pool's parameters",
            Self::TooShort => "the packet must keep at least the 14 bytes of an Ethernet header",
            Self::BadMeta => "metadata must be a multiple of 4 bytes, and at most 252",
        })
    }
}

impl std::error::Error for AdjustError {}

/// A packet inside the poll: owned, 32 bytes, returns to its pool when dropped.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, XdpBuff, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let params = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
/// let pool = Pool::new(params, arena)?.bind();
/// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
/// packet.data_mut().fill(7);
/// packet.adjust_head(-4).unwrap(); // room for a tag
/// assert_eq!(packet.len(), 64);
/// packet.adjust_tail(-4).unwrap();
/// assert_eq!(packet.len(), 60);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "xdp_buff")]
#[must_use = "a packet that is dropped at once is lost"]
#[derive(Debug)]
pub struct XdpBuff {
    head: PageBuf,
    /// Offsets in the first buffer: metadata from `meta` to `data`, the packet from `data` to `end`.
    meta: u32,
    data: u32,
    end: u32,
    chain: Chain,
}

const _: () = assert!(size_of::<XdpBuff>() == 32, "two packets in a cache line");

impl XdpBuff {
    /// Creates the packet of `len` bytes that a device wrote at the buffer's packet offset. `Err(buffer)` if
    /// `len` is more than its packet capacity.
    #[inline]
    pub fn received(buffer: PageBuf, len: usize) -> Result<Self, PageBuf> {
        if len > buffer.packet_capacity() {
            return Err(buffer);
        }
        let data = buffer.packet_offset() as u32;
        Ok(Self { head: buffer, meta: data, data, end: data + len as u32, chain: Chain::NONE })
    }

    /// Creates the packet of `len` bytes at `offset` in the buffer. `Err(buffer)` if it would end beyond the
    /// buffer, or in the tailroom.
    #[inline]
    pub fn new(buffer: PageBuf, offset: usize, len: usize) -> Result<Self, PageBuf> {
        if offset.checked_add(len).is_none_or(|end| end > hard_end(&buffer)) {
            return Err(buffer);
        }
        let (data, end) = (offset as u32, (offset + len) as u32);
        Ok(Self { head: buffer, meta: data, data, end, chain: Chain::NONE })
    }

    /// A packet in a buffer, known to end within [`hard_end`].
    #[inline(always)]
    pub(crate) fn within(buffer: PageBuf, offset: u32, len: u32) -> Self {
        debug_assert!(
            (offset + len) as usize <= hard_end(&buffer),
            "I1: a packet of {len} bytes at {offset}"
        );
        Self { head: buffer, meta: offset, data: offset, end: offset + len, chain: Chain::NONE }
    }

    /// Takes the packet apart without a drop. The caller ends the chain.
    #[inline]
    pub(crate) fn into_parts(self) -> (PageBuf, [u32; 3], Chain) {
        let mut this = ManuallyDrop::new(self);
        let chain = std::mem::take(&mut this.chain);
        // SAFETY: I1. `this` is never dropped, so the buffer is read out once.
        let head = unsafe { std::ptr::read(&this.head) };
        (head, [this.meta, this.data, this.end], chain)
    }

    /// Bytes of the packet, in all its buffers.
    #[inline]
    pub fn len(&self) -> usize {
        let head = (self.end - self.data) as usize;
        if self.chain.is_none() { head } else { head + self.chain.len(&self.head) }
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the packet has several buffers. Linux: `xdp_buff_has_frags`.
    #[inline]
    pub fn has_frags(&self) -> bool {
        !self.chain.is_none()
    }

    /// The packet's bytes in its first buffer; empty if the CPU cannot read them.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let Some(start) = self.head.as_ptr() else { return &[] };
        let (at, len) = self.span();
        // SAFETY: I1, I3. `data..end` lies in the first buffer, which this packet owns.
        unsafe { std::slice::from_raw_parts(start.wrapping_add(at), len) }
    }

    /// Length of [`data`](Self::data), without computing its address.
    #[inline(always)]
    pub fn data_len(&self) -> usize {
        if self.head.pool.base == 0 { 0 } else { (self.end - self.data) as usize }
    }

    /// Prefetches the packet's first cache line. Useful some ten packets ahead of reading it, if another CPU
    /// wrote it. Does nothing except on x86-64.
    #[inline(always)]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.head.pool.base != 0 {
            // Near enough: a part that was split off at an odd byte begins up to 7 bytes later, and a page
            // that may have references (there are few) gives another line.
            let pool = self.head.pool;
            let in_area = self.head.bits.start_in_eights(pool.geometry.base_page) as usize;
            let at = pool.base.wrapping_add(in_area + self.data as usize);
            let at = std::ptr::without_provenance(at);
            // SAFETY: a prefetch reads and changes nothing, whatever the address.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at) };
        }
    }

    /// Offset and length of the packet in its first buffer.
    #[inline(always)]
    pub(crate) fn span(&self) -> (usize, usize) {
        debug_assert!(
            self.data <= self.end && self.end as usize <= self.head.len(),
            "I1: a packet from {} to {} in a buffer of {} bytes",
            self.data,
            self.end,
            self.head.len()
        );
        (self.data as usize, (self.end - self.data) as usize)
    }

    /// The first buffer, and whether it is the only one.
    #[inline(always)]
    pub(crate) fn head(&self) -> (&PageBuf, bool) {
        (&self.head, self.chain.is_none())
    }

    #[inline(always)]
    pub(crate) fn list(&mut self) -> Option<&mut FragList> {
        self.chain.list(&self.head)
    }

    /// Puts the block of the chain back. The further buffers have other owners already.
    #[inline(always)]
    pub(crate) fn forget_frags(&mut self) {
        self.chain.forget(&self.head);
    }

    /// The packet's bytes in its first buffer, mutable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let Some(start) = self.head.as_ptr() else { return &mut [] };
        let (at, len) = self.span();
        // SAFETY: I1, I3. As in `data`, and the packet is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.wrapping_add(at), len) }
    }

    /// Swaps sender and receiver: MAC addresses, IPv4 or IPv6 addresses, and TCP or UDP ports. This turns a
    /// request into a reply. Valid checksums stay valid, because they do not depend on the order. Skips up to
    /// two VLAN tags, IPv4 options and six IPv6 extension headers; reads only the first buffer.
    ///
    /// Returns false, and changes nothing, if the packet is not IP, goes to a multicast or broadcast address,
    /// has incomplete headers, or has SCTP (whose checksum depends on the order), IPsec's authentication
    /// header, or an IPv6 routing header. Without ports (ICMP, later fragments) only the addresses are
    /// swapped.
    ///
    /// Some ten loads and stores: cheap enough for every packet.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 42).unwrap();
    /// packet.data_mut().fill(0);
    /// assert!(!packet.swap_endpoints(), "no IP");
    /// packet.data_mut()[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]); // UDP
    /// packet.data_mut()[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 7]);
    /// assert!(packet.swap_endpoints());
    /// assert_eq!(packet.data()[26..38], [10, 0, 0, 2, 10, 0, 0, 1, 0, 7, 0x30, 0x39]);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn swap_endpoints(&mut self) -> bool {
        endpoints::swap(self.data_mut())
    }

    /// The metadata, right before the packet.
    pub fn meta(&self) -> &[u8] {
        self.head.bytes().map_or(&[], |bytes| &bytes[self.meta as usize..self.data as usize])
    }

    /// The metadata, mutable.
    pub fn meta_mut(&mut self) -> &mut [u8] {
        self.head.bytes_mut().map_or(&mut [], |bytes| &mut bytes[self.meta as usize..self.data as usize])
    }

    /// The further buffers, in order.
    #[inline]
    pub fn frags(&self) -> &[Frag] {
        self.chain.frags(&self.head)
    }

    /// The further buffers, mutable.
    pub fn frags_mut(&mut self) -> &mut [Frag] {
        self.chain.frags_mut(&self.head)
    }

    /// The first buffer.
    #[inline]
    pub fn buffer(&self) -> &PageBuf {
        &self.head
    }

    /// Tags all buffers, of any pools, with their user: see [`PageBuf::set_tag`].
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Holders, Pool, PoolParams, Tag, XdpBuff, XdpFrame};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { holders: Holders::Ages, ..Default::default() }, arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    /// packet.set_tag(Tag::new("reassembly"));
    /// let frame = XdpFrame::from(packet); // has it still
    /// let holders = pool.handle().holders().unwrap();
    /// assert_eq!(holders.groups[0].tag.as_deref(), Some("reassembly"));
    /// # drop(frame);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        self.head.set_tag(tag);
        self.frags_mut().iter_mut().for_each(|frag| frag.set_tag(tag));
    }

    /// Offset of the packet in its first buffer.
    #[inline]
    pub fn offset(&self) -> usize {
        self.data as usize
    }

    /// Bytes before the metadata into which the packet can grow.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.meta as usize
    }

    /// Bytes behind the packet's end, in its last buffer, into which it can grow.
    pub fn tailroom(&self) -> usize {
        match self.frags().last() {
            Some(frag) => frag.tailroom(),
            None => hard_end(&self.head) - self.end as usize,
        }
    }

    /// Moves the start of the packet, and its metadata with it. A negative `delta` makes it longer. Linux:
    /// `bpf_xdp_adjust_head`.
    #[doc(alias = "bpf_xdp_adjust_head")]
    pub fn adjust_head(&mut self, delta: isize) -> Result<(), AdjustError> {
        let meta = self.data - self.meta;
        let data = (self.data as isize).saturating_add(delta);
        if data < meta as isize {
            return Err(AdjustError::NoRoom);
        }
        if data > self.end as isize - ETH_HEADER as isize {
            return Err(AdjustError::TooShort);
        }
        let data = data as u32;
        if meta > 0
            && let Some(bytes) = self.head.bytes_mut()
        {
            bytes.copy_within(self.meta as usize..self.data as usize, (data - meta) as usize);
        }
        (self.meta, self.data) = (data - meta, data);
        Ok(())
    }

    /// Moves the start of the metadata. A negative `delta` makes it longer, by bytes that are not set. Linux:
    /// `bpf_xdp_adjust_meta`.
    #[doc(alias = "bpf_xdp_adjust_meta")]
    pub fn adjust_meta(&mut self, delta: isize) -> Result<(), AdjustError> {
        let meta = (self.meta as isize).checked_add(delta).ok_or(AdjustError::NoRoom)?;
        if meta < 0 || meta > self.data as isize {
            return Err(AdjustError::NoRoom);
        }
        let len = self.data as usize - meta as usize;
        if !len.is_multiple_of(4) || len > MAX_META {
            return Err(AdjustError::BadMeta);
        }
        self.meta = meta as u32;
        Ok(())
    }

    /// Moves the end of the packet. A positive `delta` makes it longer, by zero bytes in its last buffer; a
    /// negative one drops further buffers that become empty. Linux: `bpf_xdp_adjust_tail`.
    #[doc(alias = "bpf_xdp_adjust_tail")]
    pub fn adjust_tail(&mut self, delta: isize) -> Result<(), AdjustError> {
        if delta >= 0 { self.grow_tail(delta as usize) } else { self.shrink_tail(delta.unsigned_abs()) }
    }

    fn grow_tail(&mut self, more: usize) -> Result<(), AdjustError> {
        if more > self.tailroom() {
            return Err(AdjustError::NoRoom);
        }
        if let Some(frag) = self.chain.frags_mut(&self.head).last_mut() {
            frag.grow(more);
            return Ok(());
        }
        if self.len() + more < ETH_HEADER {
            return Err(AdjustError::TooShort);
        }
        let from = self.end as usize;
        self.end += more as u32;
        let end = self.end as usize;
        if let Some(bytes) = self.head.bytes_mut() {
            bytes[from..end].fill(0);
        }
        Ok(())
    }

    fn shrink_tail(&mut self, mut less: usize) -> Result<(), AdjustError> {
        // If further buffers stay, the first one stays as it is; otherwise this checks the first one.
        if self.len().saturating_sub(less) < ETH_HEADER {
            return Err(AdjustError::TooShort);
        }
        while let Some(frag) = self.chain.frags_mut(&self.head).last_mut() {
            if frag.len() > less {
                frag.shrink(less);
                return Ok(());
            }
            less -= frag.len();
            drop(self.chain.pop(&self.head));
        }
        self.end -= less as u32;
        Ok(())
    }

    /// Appends a buffer of any pool, with `len` bytes of data at `offset` in it. If it continues the last one
    /// in the same page, that becomes longer instead. Linux: `xdp_buff_add_frag`.
    ///
    /// `Err(buffer)` if it has no such bytes, the packet has 17 further buffers, or all `chains` of the pool
    /// are taken.
    #[doc(alias = "xdp_buff_add_frag")]
    pub fn add_frag(&mut self, buffer: PageBuf, offset: usize, len: usize) -> Result<(), PageBuf> {
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > buffer.len()) {
            return Err(buffer);
        }
        self.chain.push(&self.head, Frag::new(buffer, offset, len)).map_err(Frag::into_buffer)
    }

    /// Splits the packet at byte `at` of its [`data`](Self::data). It keeps the bytes before, with headroom
    /// and metadata; the result has the rest, with the further buffers and no headroom. Each owns its part of
    /// the buffer: see [`PageBuf::split_off`], also for the cost. In pages of 4 MiB the rest begins at an
    /// even byte of its page.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut header = XdpBuff::received(pool.alloc_page().unwrap(), 1000).unwrap();
    /// let payload = header.split_off(54).unwrap();
    /// assert_eq!((header.len(), payload.len(), payload.headroom()), (54, 946, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn split_off(&mut self, at: usize) -> Result<Self, SplitError> {
        let len = (self.end - self.data) as usize;
        SplitError::check(at, len, 1)?;
        // Errors of the buffer count its bytes; the caller's numbers count the packet's.
        let ours = |refused| SplitError { at, len, ..refused };
        let head = self.head.split_off(self.data as usize + at).map_err(ours)?;
        let chain = std::mem::take(&mut self.chain); // of the same pool
        self.end = self.data + at as u32;
        Ok(Self { head, meta: 0, data: 0, end: (len - at) as u32, chain })
    }

    /// Copies the packet's bytes, over all its buffers, to the front of `to`. Returns how many: fewer than
    /// [`len`](Self::len) if `to` is shorter. Bytes that the CPU cannot read are left out.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut packet = pool.packet(5000).unwrap(); // in two pages
    /// packet.data_mut().fill(7);
    /// packet.frags_mut()[0].data_mut().fill(8);
    /// let mut bytes = [0; 9000];
    /// assert_eq!(packet.copy_to(&mut bytes), 5000);
    /// assert_eq!((bytes[0], bytes[4999], bytes[5000]), (7, 8, 0));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let mut done = 0;
        for part in std::iter::once(self.data()).chain(self.frags().iter().map(Frag::data)) {
            let n = part.len().min(to.len() - done);
            to[done..done + n].copy_from_slice(&part[..n]);
            done += n;
        }
        done
    }

    /// Returns the first buffer, for returning packets in bulk. The others go back to their pools now.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    /// let mut ended = vec![packet.into_buffer()];
    /// pagepool::put_bulk(&mut ended);
    /// assert_eq!(pool.stats().recycle_cached, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[inline]
    pub fn into_buffer(self) -> PageBuf {
        let (head, _, mut chain) = self.into_parts();
        chain.end(&head, drop);
        head
    }

    /// Removes the last further buffer.
    pub fn pop_frag(&mut self) -> Option<Frag> {
        self.chain.pop(&self.head)
    }
}

impl Drop for XdpBuff {
    #[inline]
    fn drop(&mut self) {
        self.chain.end(&self.head, drop);
    }
}

/// Where a packet in this buffer must end at the latest.
#[inline]
pub(crate) fn hard_end(buffer: &PageBuf) -> usize {
    if buffer.is_frag() { buffer.len() } else { whole_end(buffer.pool) as usize }
}

/// Where a packet in a whole page of this pool must end at the latest.
#[inline(always)]
pub(crate) fn whole_end(pool: PoolPtr) -> u32 {
    pool.geometry.page_size() as u32 - pool.geometry.tailroom
}
