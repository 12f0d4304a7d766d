//! Buffers: returning them, and what can be asked of them.

// UNSAFETY: functions with fixed names.
#![expect(unsafe_code)]

mod bulk;
pub(crate) mod page_ref;
mod raw;
pub(crate) mod shared;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ::pagepool::PageBuf;

use crate::error::{CallError, status, value_or};
use crate::handles::claim::{claim, look, put_by_place, put_here};
use crate::handles::directory;
use crate::handles::opaque::{BufHandle, PoolHandle};
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// Returns a buffer to its pool: into the cache on the owner's thread, otherwise through the thread's lane or
/// the ring. Linux: page_pool_put_full_page.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -ESTALE for a buffer that was returned before, -EINVAL for a value that never was a buffer.
///     Nothing changes then.
/// Cost: on the owner's thread about fifteen instructions, and no atomic operation until another thread first
///     returns a buffer of the pool; one compare-and-swap after that. On other threads one compare-and-swap
///     and one store.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_put(buf: *mut BufHandle) -> c_int {
    let token = Token::of(buf);
    if put_here(token) { 0 } else { put_slow(token) }
}

#[cold]
#[inline(never)]
extern "C" fn put_slow(token: Token) -> c_int {
    if put_by_place(token) {
        return 0;
    }
    status(|| {
        drop(claim(token)?.keep());
        Ok(())
    })
}

/// Returns a buffer through the locked ring, on every thread. Linux: page_pool_put_full_page outside softirq.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: as pagepool_buf_put.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_put_ring(buf: *mut BufHandle) -> c_int {
    status(|| {
        claim(Token::of(buf))?.keep().put_ring();
        Ok(())
    })
}

/// Returns a buffer of which only the first `dirty` packet bytes were written, and syncs no more than these
/// for the device. Linux: page_pool_put_page with a dma_sync_size.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: as pagepool_buf_put.
/// Cost: as pagepool_buf_put, and the sync.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_put_sync(buf: *mut BufHandle, dirty: usize) -> c_int {
    status(|| {
        claim(Token::of(buf))?.keep().recycle_sync(dirty);
        Ok(())
    })
}

/// Returns a buffer into the cache of its pool, and checks that the caller owns that pool. Linux:
/// page_pool_recycle_direct.
///
/// Thread: owner.
/// Ownership: the handle ends, unless the call fails.
/// Errors: -EPERM on another thread. -EINVAL for a buffer of another pool. Otherwise as pagepool_buf_put.
/// Cost: a lookup more than pagepool_buf_put.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_recycle_direct(pool: *mut PoolHandle, buf: *mut BufHandle) -> c_int {
    status(|| {
        enter(Token::of(pool), |owned| {
            let token = Token::of(buf);
            let same = std::ptr::eq(directory::find(token)?.view, owned.view);
            if !same {
                return Err(CallError::fixed(libc::EINVAL, c"the buffer belongs to another pool"));
            }
            drop(claim(token)?.keep());
            Ok(())
        })
    })
}

// ---- Looking at a buffer ----

fn ask<R>(otherwise: R, buf: *mut BufHandle, what: impl FnOnce(&PageBuf) -> R) -> R {
    value_or(otherwise, || look(Token::of(buf), what))
}

fn address(at: Option<*mut u8>) -> *mut c_void {
    at.map_or(null_mut(), <*mut u8>::cast)
}

/// Gives the address of the page or fragment. NULL for memory that the CPU cannot read, or a bad handle.
/// Linux: page_address.
///
/// Thread: the one that has the buffer.
/// Ownership: the bytes are the caller's until the buffer is returned.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_data(buf: *mut BufHandle) -> *mut c_void {
    ask(null_mut(), buf, |buf| address(buf.as_ptr()))
}

/// Gives the size in bytes: of the page, or of the fragment with what it received at the end of its page. 0
/// for a bad handle. Linux: truesize.
///
/// Thread: the one that has the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_len(buf: *mut BufHandle) -> usize {
    ask(0, buf, PageBuf::len)
}

/// Gives the offset of a fragment in its page; 0 for a whole page, SIZE_MAX for a bad handle.
///
/// Thread: the one that has the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_offset(buf: *mut BufHandle) -> usize {
    ask(usize::MAX, buf, PageBuf::offset)
}

/// Gives the device address of the first byte in the pool's first domain. UINT64_MAX if the pool has no
/// domain, if the device has gone, or for a bad handle. Linux: page_pool_get_dma_addr plus the offset.
///
/// Thread: the one that has the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_dma_addr(buf: *mut BufHandle) -> u64 {
    const NONE: CallError = CallError::fixed(
        libc::EOPNOTSUPP,
        c"the buffer has no device address: its pool has no domain, or the device has gone",
    );
    value_or(u64::MAX, || look(Token::of(buf), PageBuf::dma_addr)?.map(|at| at.0).ok_or(NONE))
}

/// Gives the number of the page in its arena, in units of 4096 bytes. For a page of a higher order it is the
/// number of its first 4096 bytes, for a fragment that of its page. UINT32_MAX for a bad handle.
///
/// Thread: the one that has the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_page_index(buf: *mut BufHandle) -> u32 {
    ask(u32::MAX, buf, |buf| buf.page().0)
}

/// Gives 1 for a fragment of a page and 0 for a whole page.
///
/// Thread: the one that has the buffer.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_is_frag(buf: *mut BufHandle) -> c_int {
    let done = crate::error::to_errno(|| look(Token::of(buf), PageBuf::is_frag));
    done.map_or_else(|errno| errno, c_int::from)
}

/// Gives the address where the packet begins: behind the headroom and the colour of a page, at the start of a
/// fragment. NULL for memory that the CPU cannot read, or a bad handle.
///
/// Thread: the one that has the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_packet(buf: *mut BufHandle) -> *mut c_void {
    ask(null_mut(), buf, |buf| address(buf.as_ptr().map(|at| at.wrapping_add(buf.packet_offset()))))
}

/// Gives the largest packet that fits, in bytes: `max_len` for a whole page, the size of a fragment. 0 for a
/// bad handle.
///
/// Thread: the one that has the buffer.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_packet_capacity(buf: *mut BufHandle) -> usize {
    ask(0, buf, PageBuf::packet_capacity)
}

/// Hands `len` bytes from `offset` in the buffer to the CPU, in every domain that is not coherent. Linux:
/// page_pool_dma_sync_for_cpu.
///
/// Thread: the one that has the buffer.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup, and the syncs of the domains.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_sync_for_cpu(buf: *mut BufHandle, offset: usize, len: usize) -> c_int {
    sync(buf, offset, |buf| buf.sync_for_cpu(offset, len))
}

/// Hands `len` bytes from `offset` in the buffer to the device, in every domain that is not coherent. Call it
/// before the device transmits them. Linux: dma_sync_single_range_for_device.
///
/// Thread: the one that has the buffer.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lookup, and the syncs of the domains.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_sync_for_device(buf: *mut BufHandle, offset: usize, len: usize) -> c_int {
    sync(buf, offset, |buf| buf.sync_for_device(offset, len))
}

fn sync(buf: *mut BufHandle, offset: usize, what: impl FnOnce(&mut PageBuf)) -> c_int {
    status(|| {
        let mut claimed = claim(Token::of(buf))?;
        // Beyond the buffer there is nothing to sync, and no address to compute.
        if offset < claimed.buffer.len() {
            what(&mut claimed.buffer);
        }
        claimed.put_back();
        Ok(())
    })
}
