//! What the crates `pagepool-skb` and `pagepool-testing` need of this one beyond its interface.
//!
//! What   atomics, cells and locks that are loom's in a model, the slab of blocks, parts of buffers and frames
//!        that their public methods keep together, and what only tests do: change the
//!        system's page size.
//! Who    those two crates of this workspace alone. It is hidden and may change in any release.

// UNSAFETY: passes on the caller's promises about handles that share a buffer.
#![expect(unsafe_code)]

use std::ops::Range;

use crate::buf::page_buf::PageBuf;
use crate::buf::shared_buf::SharedBuf;
use crate::error::Error;
use crate::holders::tag::Tag;
use crate::mem::area::Area;
use crate::packet::chain::Frag;
use crate::packet::xdp_frame::XdpFrame;
use crate::sys::table::zeroed;

pub use crate::sys::memory::pretend_system_page;
pub use crate::sys::slab::Slab;
pub use crate::sys::sync::{AtomicBool, AtomicI64, AtomicU32, LastCell, Lock, Ordering, fence};

/// Pages of an area's regions that are present, in order.
pub fn present_pages(area: &Area) -> Vec<Range<u32>> {
    area.present_pages()
}

/// Zeroed bytes of the global allocator, which are not touched.
pub fn zeroed_bytes(len: usize) -> Result<Box<[u8]>, Error> {
    zeroed(len)
}

/// Tags a buffer that other handles share.
#[inline]
pub fn tag_shared(buffer: &PageBuf, tag: Tag) {
    buffer.note_tag(tag);
}

/// Takes a frame apart: `each` gets its further buffers in order. Returns the first buffer, where the packet
/// is in it, and where it must end at the latest.
#[inline]
pub fn take_apart(frame: XdpFrame, each: impl FnMut(Frag)) -> (PageBuf, Range<u32>, u32) {
    frame.take_apart(each)
}

/// The buffer of a reader.
#[inline]
pub fn buffer_of(reader: &SharedBuf) -> &PageBuf {
    reader.buffer()
}

/// Counts a buffer as shared, in its page, although its handle is not a reader yet.
///
/// # Safety
/// Fewer than 2^31 counts of a buffer exist at a time.
#[inline]
pub unsafe fn count_shared(buffer: &PageBuf) {
    SharedBuf::count(buffer);
}

/// Reverts one [`count_shared`].
///
/// # Safety
/// The buffer was counted once more than it has handles that became readers or will.
#[inline]
pub unsafe fn uncount_shared(buffer: &PageBuf) {
    SharedBuf::uncount(buffer);
}

/// The reader that a buffer becomes which was [counted](count_shared).
///
/// # Safety
/// The buffer was counted for this handle.
#[inline]
pub unsafe fn counted_reader(buffer: PageBuf) -> SharedBuf {
    SharedBuf::counted(buffer)
}

/// A clone of a buffer that is not a reader yet. One atomic operation.
///
/// # Safety
/// The buffer was [counted](count_shared), and its holder makes it a reader with [`counted_reader`] before it
/// is dropped or written.
#[inline]
pub unsafe fn reader_beside(buffer: &PageBuf) -> SharedBuf {
    // SAFETY: I1. The caller's promise.
    unsafe { SharedBuf::beside(buffer) }
}
