//! Batches: whole pages of one pool that move together, without a handle for each.

// UNSAFETY: exported functions; writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::api::pool::alloc::EXHAUSTED;
use crate::args::out::{array_mut, store_handle};
use crate::caller::{Caller, from_caller};
use crate::error::{CallError, status, value_or};
use crate::handles::batch_table::{self, BatchEntry};
use crate::handles::claim::claim;
use crate::handles::opaque::{BatchHandle, BufHandle, PoolHandle};
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// Creates an empty batch, for up to 64 whole pages of one pool at a time.
///
/// Thread: any.
/// Ownership: release `*batch` with pagepool_batch_destroy.
/// Errors: -EINVAL for NULL. -EBUSY if there are 4096 batches. -ENOMEM.
/// Cost: a lock; allocates 384 bytes, which later batches reuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_batch_create(batch: *mut *mut BatchHandle) -> c_int {
    // SAFETY: `batch` is NULL or the caller's to write.
    unsafe { store_handle(batch, batch_table::create) }
}

/// Destroys a batch; its pages return to their pool as by pagepool_batch_put.
///
/// Thread: any, one at a time per batch.
/// Ownership: the handle ends.
/// Errors: -EBUSY during another call on this batch. -EINVAL, -ESTALE for a bad handle.
/// Cost: pagepool_batch_put, and a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_batch_destroy(batch: *mut BatchHandle) -> c_int {
    status(|| batch_table::destroy(Token::of(batch)))
}

/// Adds up to `n` whole pages of the pool to the batch, while it has room. Returns how many it added. Linux:
/// page_pool_dev_alloc_pages in a loop.
///
/// Thread: owner of the pool; one at a time per batch.
/// Ownership: the pages are the batch's. The pool counts them as out.
/// Errors: fewer than `n`, and pagepool_last_error says why: no page is left (ENOMEM, counted in
///     `alloc_failed`), the batch is full (ENOBUFS) or has pages of another pool (EINVAL), another call uses
///     it (EBUSY), another thread owns the pool (EPERM), or a bad handle (EINVAL, ESTALE).
/// Cost: one copy from the cache, and one exchange.
#[unsafe(no_mangle)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), unsafe(naked))]
pub extern "C" fn pagepool_batch_alloc(batch: *mut BatchHandle, pool: *mut PoolHandle, n: usize) -> usize {
    from_caller!(batch_alloc(batch, pool, n))
}

extern "C" fn batch_alloc(batch: *mut BatchHandle, pool: *mut PoolHandle, n: usize, caller: Caller) -> usize {
    let mut added = 0;
    let alloc = |entry: &mut BatchEntry| {
        added = enter(Token::of(pool), |owned| entry.alloc(owned, n, caller))?;
        if added == n {
            return Ok(());
        }
        entry.check_room().and(Err(EXHAUSTED))
    };
    let _ = status(|| batch_table::with(Token::of(batch), alloc)); // kept for pagepool_last_error
    added
}

/// Returns all pages of the batch to their pool; the batch remains, empty. Linux: page_pool_put_netmem_bulk.
///
/// Thread: any, one at a time per batch.
/// Ownership: the pages are the pool's again. The handle stays the caller's.
/// Errors: -EBUSY during another call on this batch. -EINVAL, -ESTALE for a bad handle.
/// Cost: on the owner's thread one copy into the cache; otherwise one bulk of messages. Plus an exchange.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_batch_put(batch: *mut BatchHandle) -> c_int {
    let put = |entry: &mut BatchEntry| {
        entry.batch.put();
        Ok(())
    };
    status(|| batch_table::with(Token::of(batch), put))
}

/// Returns the number of pages in the batch. 0 also for a bad handle, or during another call on this batch.
///
/// Thread: any, one at a time per batch.
/// Cost: a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_batch_len(batch: *mut BatchHandle) -> usize {
    value_or(0, || batch_table::with(Token::of(batch), |entry| Ok(entry.batch.len())))
}

/// Stores the packet addresses (after headroom and colour) of the first `n` pages in `packets`, in order.
/// Returns how many it stored: `n`, or the length of the batch if that is less.
///
/// Thread: any, one at a time per batch.
/// Ownership: the bytes are the caller's until the pages leave the batch. Until then page i keeps its index.
/// Errors: 0 for NULL or a bad handle (EINVAL, ESTALE), memory that the CPU cannot read (EOPNOTSUPP), or
///     during another call on this batch (EBUSY).
/// Cost: per page an addition and a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_batch_packets(
    batch: *mut BatchHandle,
    packets: *mut *mut c_void,
    n: usize,
) -> usize {
    let look = |entry: &mut BatchEntry| {
        // SAFETY: the caller gave room for `n`, or NULL.
        let places = unsafe { array_mut(packets, n) }?;
        if entry.batch.is_empty() {
            return Ok(0);
        }
        let stored = places.len().min(entry.batch.len());
        let packets = entry.batch.packets_mut().ok_or(CallError::UNREADABLE)?;
        for (place, packet) in places.iter_mut().zip(packets) {
            place.write(packet.as_mut_ptr().cast());
        }
        Ok(stored)
    };
    value_or(0, || batch_table::with(Token::of(batch), look))
}

/// Removes the last page from the batch and returns it as a buffer with its own handle.
///
/// Thread: any, one at a time per batch.
/// Ownership: the buffer is the caller's until it is returned.
/// Errors: NULL if the batch is empty (-ENOENT), during another call on it (-EBUSY), or for a bad handle
///     (-EINVAL, -ESTALE).
/// Cost: about as pagepool_alloc_page.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_batch_pop(batch: *mut BatchHandle) -> *mut BufHandle {
    value_or(null_mut(), || Ok(batch_table::with(Token::of(batch), BatchEntry::pop)?.handle()))
}

/// Appends a buffer to the batch. It must be a whole page of the pool of the other pages, must never have
/// been shared, and must have no page reference.
///
/// Thread: the one that holds the buffer; one at a time per batch.
/// Ownership: the handle of the buffer ends, unless the call fails.
/// Errors: -EINVAL for another kind of buffer, or one of another pool. -ENOBUFS if the batch is full. -EBUSY
///     during another call on this batch. -EINVAL, -ESTALE for a bad handle.
/// Cost: about as pagepool_buf_put; on other threads than the owner's a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_batch_push(batch: *mut BatchHandle, buf: *mut BufHandle) -> c_int {
    let push = |entry: &mut BatchEntry| {
        let claimed = claim(Token::of(buf))?;
        let view = claimed.view();
        claimed.give(|buffer| entry.push(buffer, view))
    };
    status(|| batch_table::with(Token::of(batch), push))
}
