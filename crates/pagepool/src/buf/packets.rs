//! The packets of many buffers: the pool is looked at once for a run of its whole pages, not once a buffer.
//!
//! Who    any thread that has the buffers.
//! Cost   a load, two compares and an address a buffer; `packet` also loads where the pool's packets lie.

// UNSAFETY: the bytes of a buffer are reached by address.
#![expect(unsafe_code)]

use std::ptr::slice_from_raw_parts_mut;

use crate::buf::packed_buf::PackedBuf;
use crate::buf::page_buf::PageBuf;
use crate::mem::page::PageIdx;
use crate::returns::geometry::Geometry;
use crate::returns::pool_core::PoolPtr;

/// The bytes for the packets of buffers, in order, each as [`PageBuf::packet`] gives it. For bursts: the pool
/// is looked at once for a run of its pages. Any thread.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// let mut burst = Vec::with_capacity(32);
/// pool.alloc_bulk(&mut burst, 32);
/// pagepool::packets_mut(&mut burst).flatten().zip(0..).for_each(|(packet, at)| packet[0] = at);
/// assert!(pagepool::packets(&burst).flatten().map(|packet| packet[0]).eq(0..32));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[inline(always)]
pub fn packets(buffers: &[PageBuf]) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
    let mut place = PacketPlace::NONE;
    // SAFETY: I1, I3. The buffers own the bytes, and are borrowed as long as they are.
    buffers.iter().map(move |buffer| place.of(buffer).map(|packet| unsafe { &*packet }))
}

/// The same for writing; each packet is as [`PageBuf::packet_mut`] gives it.
#[inline(always)]
pub fn packets_mut(buffers: &mut [PageBuf]) -> impl ExactSizeIterator<Item = Option<&mut [u8]>> {
    let mut place = PacketPlace::NONE;
    // SAFETY: I1, I3. Each buffer owns its bytes alone, and all are borrowed exclusively as long as they are.
    buffers.iter_mut().map(move |buffer| place.of(buffer).map(|packet| unsafe { &mut *packet }))
}

impl PackedBuf {
    /// As [`packets`] for packed buffers.
    #[inline(always)]
    pub fn packets(buffers: &[Self]) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        let mut place = PacketPlace::NONE;
        // SAFETY: I1, I3. The buffers own the bytes, and are borrowed as long as they are.
        buffers.iter().map(move |buffer| place.of_packed(buffer).map(|packet| unsafe { &*packet }))
    }

    /// As [`packets_mut`] for packed buffers.
    #[inline(always)]
    pub fn packets_mut(buffers: &mut [Self]) -> impl ExactSizeIterator<Item = Option<&mut [u8]>> {
        let mut place = PacketPlace::NONE;
        // SAFETY: I1, I3. Each buffer owns its bytes alone, and all are borrowed exclusively as long as they
        // are.
        buffers.iter_mut().map(move |buffer| place.of_packed(buffer).map(|packet| unsafe { &mut *packet }))
    }
}

/// Where the packets of a pool's whole pages lie; learned from the last buffer of another kind.
struct PacketPlace {
    /// The pool's address, or what its packed buffers have in common; at first what no buffer has.
    kind: u64,
    base: usize,
    /// None for memory that the CPU cannot read.
    layout: Option<Geometry>,
}

impl PacketPlace {
    const NONE: Self = Self { kind: u64::MAX, base: 0, layout: None };

    #[inline(always)]
    fn of(&mut self, buffer: &PageBuf) -> Option<*mut [u8]> {
        if !buffer.bits.is_whole() {
            return packet_of(buffer);
        }
        let kind = buffer.pool.addr() as u64;
        if kind != self.kind {
            self.learn(kind, buffer.pool);
        }
        self.packet(buffer.bits.whole_page())
    }

    #[inline(always)]
    fn of_packed(&mut self, buffer: &PackedBuf) -> Option<*mut [u8]> {
        let kind = buffer.kind();
        if kind != self.kind {
            let handle = buffer.borrowed();
            if !handle.bits.is_whole() {
                return packet_of(&handle);
            }
            self.learn(kind, handle.pool);
        }
        self.packet(buffer.page())
    }

    #[inline(always)]
    fn packet(&self, page: PageIdx) -> Option<*mut [u8]> {
        let layout = self.layout.as_ref()?;
        let start = self.base + page.offset() as usize + layout.packet_offset(page);
        let start = std::ptr::with_exposed_provenance_mut(start);
        Some(slice_from_raw_parts_mut(start, layout.max_len as usize))
    }

    /// Remembers where a pool's packets lie, if the CPU can read them.
    #[cold]
    fn learn(&mut self, kind: u64, pool: PoolPtr) {
        *self = Self { kind, base: pool.base, layout: (pool.base != 0).then_some(pool.geometry) };
    }
}

/// What [`PageBuf::packet_mut`] gives.
#[inline]
fn packet_of(buffer: &PageBuf) -> Option<*mut [u8]> {
    let start = buffer.packet_ptr()?;
    Some(slice_from_raw_parts_mut(start.as_ptr(), buffer.packet_capacity()))
}
