//! Buffers: returning and querying them.

// UNSAFETY: exported functions.
#![expect(unsafe_code)]

mod bulk;
pub(crate) mod page_ref;
mod raw;
pub(crate) mod shared;
mod split;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ::pagepool::PageBuf;

use crate::error::{CallError, CallResult, number, status, value_or};
use crate::handles::claim::{claim, is_here, lend, put_any, put_away, read};
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// Returns a buffer to its pool: on the owner's thread into the cache, otherwise through the thread's lane or
/// the ring. Linux: page_pool_put_full_page.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a buffer that was returned before. -EINVAL for a value that never was a buffer.
///     Nothing changes then. If two threads return a buffer at the same moment, both calls may return 0; one
///     is refused later, and counted in `returned_twice`.
/// Cost: no atomic operation for a page that returns through the cache or a lane, in pools without `holders`
///     and syncs. A lock, if other threads claim buffers. One atomic operation for a fragment.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_put(buf: *mut BufHandle) -> c_int {
    let token = Token::of(buf);
    if is_here(token) { put_any(token) } else { put_away(token) }
}

/// Returns a buffer to its pool through the ring, even on the owner's thread. Linux: page_pool_put_full_page
/// outside softirq.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: as pagepool_buf_put.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_put_ring(buf: *mut BufHandle) -> c_int {
    status(|| claim(Token::of(buf)).map(|claimed| claimed.keep().put_ring()))
}

/// Returns a buffer to its pool, and says that only the first `dirty` bytes of its packet were written: with
/// `sync_for_device` only these are synced. Linux: page_pool_put_page with a dma_sync_size.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: as pagepool_buf_put.
/// Cost: as pagepool_buf_put, and the sync.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_put_sync(buf: *mut BufHandle, dirty: usize) -> c_int {
    status(|| claim(Token::of(buf)).map(|claimed| claimed.keep().recycle_sync(dirty)))
}

/// Returns a buffer to the cache of its pool, and checks that the calling thread owns that pool. Linux:
/// page_pool_recycle_direct.
///
/// Thread: owner.
/// Ownership: the handle ends, unless the call fails.
/// Errors: -EPERM on another thread. -EINVAL for a buffer of another pool. Otherwise as pagepool_buf_put.
/// Cost: one lookup more than pagepool_buf_put.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_recycle_direct(pool: *mut PoolHandle, buf: *mut BufHandle) -> c_int {
    status(|| {
        enter(Token::of(pool), |owned| {
            owned.check_buffer(Token::of(buf))?;
            Ok(claim(Token::of(buf))?.keep())
        })
    })
}

// ---- Querying a buffer ----

fn query<R>(otherwise: R, buf: *mut BufHandle, what: impl FnOnce(&PageBuf) -> R) -> R {
    value_or(otherwise, || read(Token::of(buf), what))
}

/// The address of bytes that the CPU can read.
pub(crate) fn address(at: Option<*mut u8>) -> CallResult<*mut c_void> {
    at.map(<*mut u8>::cast).ok_or(CallError::UNREADABLE)
}

/// Returns the address of the first byte of the page or fragment. NULL for memory that the CPU cannot read
/// (-EOPNOTSUPP), or for a bad handle (-EINVAL, -ESTALE). Linux: page_address.
///
/// Thread: the one that holds the buffer.
/// Ownership: the bytes are the caller's until the buffer is returned.
/// Cost: a lookup. Inline for a whole page without references.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_data(buf: *mut BufHandle) -> *mut c_void {
    value_or(null_mut(), || read(Token::of(buf), |buf| address(buf.as_ptr()))?)
}

/// Returns the size of the page or fragment in bytes. The last fragment of a page includes the rest of the
/// page. 0 for a bad handle. Linux: truesize.
///
/// Thread: the one that holds the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_len(buf: *mut BufHandle) -> usize {
    query(0, buf, PageBuf::len)
}

/// Returns the offset of a fragment in its page, in bytes; 0 for a whole page. SIZE_MAX for a bad handle.
///
/// Thread: the one that holds the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_offset(buf: *mut BufHandle) -> usize {
    query(usize::MAX, buf, PageBuf::offset)
}

/// Returns the device address of the buffer's first byte in the pool's first domain. UINT64_MAX if the pool
/// has no domain, if the device is gone, or for a bad handle. Linux: page_pool_get_dma_addr plus the offset.
///
/// Thread: the one that holds the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_dma_addr(buf: *mut BufHandle) -> u64 {
    const NONE: CallError = CallError::fixed(
        libc::EOPNOTSUPP,
        c"the buffer has no device address: its pool has no domain, or the device is gone",
    );
    value_or(u64::MAX, || read(Token::of(buf), PageBuf::dma_addr)?.map(|at| at.0).ok_or(NONE))
}

/// Returns the number of the buffer's page in its arena, counted in base pages (pages of order 0). A page of
/// a higher order has the number of its first base page. UINT32_MAX for a bad handle.
///
/// Thread: the one that holds the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_page_index(buf: *mut BufHandle) -> u32 {
    query(u32::MAX, buf, |buf| buf.page().0)
}

/// Returns 1 for a fragment and 0 for a whole page.
///
/// Thread: the one that holds the buffer.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_is_frag(buf: *mut BufHandle) -> c_int {
    number(|| read(Token::of(buf), |buf| buf.is_frag().into()))
}

/// Returns the address where the packet begins: after headroom and colour in a whole page, the first byte of
/// a fragment. NULL for memory that the CPU cannot read (-EOPNOTSUPP), or for a bad handle (-EINVAL,
/// -ESTALE).
///
/// Thread: the one that holds the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_packet(buf: *mut BufHandle) -> *mut c_void {
    let packet = |buf: &PageBuf| address(buf.as_ptr().map(|at| at.wrapping_add(buf.packet_offset())));
    value_or(null_mut(), || read(Token::of(buf), packet)?)
}

/// Returns the size of the largest packet that fits, in bytes: `max_len` for a whole page, the full size for
/// a fragment. 0 for a bad handle.
///
/// Thread: the one that holds the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_packet_capacity(buf: *mut BufHandle) -> usize {
    query(0, buf, PageBuf::packet_capacity)
}

/// Makes `len` bytes from `offset` in the buffer visible to the CPU, in every domain that is not coherent.
/// Call it after the device wrote them. Linux: page_pool_dma_sync_for_cpu.
///
/// Thread: the one that holds the buffer.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup, and the syncs of the domains.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_sync_for_cpu(buf: *mut BufHandle, offset: usize, len: usize) -> c_int {
    sync(buf, offset, |buf| buf.sync_for_cpu(offset, len))
}

/// Makes `len` bytes from `offset` in the buffer visible to the device, in every domain that is not coherent.
/// Call it before the device reads them. Linux: dma_sync_single_range_for_device.
///
/// Thread: the one that holds the buffer.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup, and the syncs of the domains.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_sync_for_device(buf: *mut BufHandle, offset: usize, len: usize) -> c_int {
    sync(buf, offset, |buf| buf.sync_for_device(offset, len))
}

fn sync(buf: *mut BufHandle, offset: usize, what: impl FnOnce(&mut PageBuf)) -> c_int {
    // Beyond the buffer there is nothing to sync, and no address to compute.
    status(|| {
        lend(Token::of(buf), |buf| {
            if offset < buf.len() {
                what(buf)
            }
        })
    })
}
