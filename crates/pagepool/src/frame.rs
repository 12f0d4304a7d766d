//! A packet that outlives the poll.
//!
//! What   as a `Buff`, but of any memory, and for any thread: it waits in a transmit ring, goes to another thread, is
//!        kept. Linux: `struct xdp_frame`.
//! How    a value. Linux writes its frame into the packet's own headroom, where the device may write too.
//! Cost   48 bytes. Making one of a `Buff` moves the handle and allocates nothing.

// UNSAFETY: a frame that becomes a packet again is taken apart without being dropped.
#![expect(unsafe_code)]

use std::mem::ManuallyDrop;

use crate::buf::PageBuf;
use crate::buff::{Buff, hard_end};
use crate::chain::{Chain, Frag};
use crate::dma::{DeviceAddr, DomainId, Mapping};
use crate::memory::Memory;

/// A packet that outlives the poll: owned, `Send`, home when dropped, on any thread.
#[doc(alias = "xdp_frame")]
#[must_use = "a frame that is dropped at once is lost"]
#[derive(Debug)]
pub struct Frame {
    memory: Memory,
    /// Offsets in the first buffer, as in a [`Buff`].
    meta: u32,
    data: u32,
    end: u32,
    /// Behind the last byte of the first buffer that the packet may have.
    hard_end: u32,
    chain: Chain,
}

const _: () = assert!(size_of::<Frame>() <= 48, "three handles");

impl From<Buff> for Frame {
    /// Linux: `xdp_convert_buff_to_frame`, which fails where the headroom is too small for its header.
    #[inline]
    fn from(packet: Buff) -> Self {
        let hard_end = hard_end(packet.buffer()) as u32;
        let (head, [meta, data, end], chain) = packet.into_parts();
        Self { memory: Memory::Pool(head), meta, data, end, hard_end, chain }
    }
}

impl Frame {
    /// The packet inside a poll again, for a program that runs elsewhere; only pool memory can be that. Linux:
    /// `xdp_convert_frame_to_buff`.
    #[doc(alias = "xdp_convert_frame_to_buff")]
    pub fn into_buff(self) -> Result<Buff, Frame> {
        let Memory::Pool(_) = &self.memory;
        let (memory, ends, chain) = self.into_parts();
        let Memory::Pool(head) = memory;
        Ok(Buff::from_parts(head, ends, chain))
    }

    /// Parts with everything; whoever calls it ends the chain.
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
        let Memory::Pool(head) = &self.memory;
        Some(head)
    }

    /// What the first buffer is.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
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
    pub fn segment_count(&self) -> usize {
        1 + self.frags().len()
    }

    /// Bytes of the packet in its first buffer; empty for memory that the CPU cannot read.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let Memory::Pool(head) = &self.memory;
        head.bytes().map_or(&[], |bytes| &bytes[self.data as usize..self.end as usize])
    }

    /// The same, for writing.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let Memory::Pool(head) = &mut self.memory;
        head.bytes_mut().map_or(&mut [], |bytes| &mut bytes[self.data as usize..self.end as usize])
    }

    /// The further buffers, in order.
    pub fn frags(&self) -> &[Frag] {
        self.buffer().map_or(&[], |head| self.chain.frags(head))
    }

    /// Bytes behind the packet in its first buffer that it could still grow by.
    pub fn tailroom(&self) -> usize {
        (self.hard_end - self.end) as usize
    }

    /// Bytes before the packet's metadata.
    pub fn headroom(&self) -> usize {
        self.meta as usize
    }

    /// All its buffers, as a device is to send them.
    #[inline]
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let head = self.buffer().map(|buffer| Segment {
            buffer,
            offset: self.data as usize,
            len: (self.end - self.data) as usize,
        });
        head.into_iter().chain(self.frags().iter().map(|frag| Segment {
            buffer: frag.buffer(),
            offset: frag.offset(),
            len: frag.len(),
        }))
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        if !self.chain.is_none() {
            let Memory::Pool(head) = &self.memory;
            self.chain.end(head, drop);
        }
    }
}

/// One of a frame's buffers, and where in it the data lies.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    buffer: &'a PageBuf,
    offset: usize,
    len: usize,
}

impl<'a> Segment<'a> {
    /// The buffer.
    pub fn buffer(&self) -> &'a PageBuf {
        self.buffer
    }

    /// Where the data begins in the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of data.
    #[expect(clippy::len_without_is_empty, reason = "what a device is to send is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The data; empty for memory that the CPU cannot read.
    pub fn data(&self) -> &'a [u8] {
        self.buffer.bytes().map_or(&[], |bytes| &bytes[self.offset..self.offset + self.len])
    }

    /// Where that device finds the data, if it is mapped there: see [`PageBuf::dma_addr_in`].
    #[inline]
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let at = self.buffer.dma_addr_in(domain)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }

    /// Where the device finds the data by a mapping that the caller keeps: see [`PageBuf::dma_addr_by`].
    #[inline]
    pub fn dma_addr_by(&self, mapping: &Mapping) -> Option<DeviceAddr> {
        let at = self.buffer.dma_addr_by(mapping)?;
        Some(DeviceAddr(at.0 + self.offset as u64))
    }

    /// Hands the data to the device.
    pub fn sync_for_device(&self) {
        self.buffer.sync_for_device(self.offset, self.len);
    }
}
