//! The memory of a packet: buffers, shared buffers, and memory of the caller with a callback.

// UNSAFETY: exported functions; calls callers' callbacks.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use ::pagepool::{MAX_FRAGS, SharedBuf, uncancelled};
use pagepool_skb::{SkBuff, SkbError, SkbMemory};

use crate::error::{CallError, CallResult, status};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, SharedHandle, SkbHandle};
use crate::handles::tables::{SHARED_BUFS, SKBS};
use crate::handles::token::Token;

/// Checks that a packet can take `len` bytes at `offset` of memory of `size` bytes.
fn takes(packet: &SkBuff, size: usize, offset: usize, len: usize) -> CallResult<()> {
    if packet.is_cloned() {
        return Err(SkbError::Cloned.into());
    }
    if packet.nr_frags() >= MAX_FRAGS {
        return Err(CallError::fixed(
            libc::ENOSPC,
            c"the packet has 17 fragments, the limit: make it linear, or use another packet",
        ));
    }
    let within = len > 0 && offset.checked_add(len).is_some_and(|end| end <= size && end < u32::MAX as usize);
    if !within || packet.len().checked_add(len).is_none_or(|sum| sum >= u32::MAX as usize) {
        let text = format!(
            "{len} bytes at {offset} must be at least 1, within {size} bytes, and less than 4 GiB with the \
             packet"
        );
        return Err(CallError::formatted(libc::EINVAL, text));
    }
    Ok(())
}

/// Appends memory that `takes` accepted.
fn append(packet: &mut SkBuff, memory: impl Into<SkbMemory>, offset: usize, len: usize) -> CallResult<()> {
    packet.add_frag(memory, offset, len).map_err(|_| CallError::INTERNAL)
}

/// Appends `len` bytes at `offset` in a buffer to the packet, as a fragment. A packet has at most 17
/// fragments. Linux: skb_add_rx_frag.
///
/// Thread: any, one at a time per packet.
/// Ownership: the handle of the buffer ends, unless the call fails.
/// Errors: -EINVAL for bytes beyond the buffer. -ENOSPC for the 18th fragment. -EBUSY while a clone shares
///     the bytes, or during another call on the packet. -EINVAL, -ESTALE for a bad handle.
/// Cost: the packet's lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_add_buf(
    skb: *mut SkbHandle,
    buf: *mut BufHandle,
    offset: usize,
    len: usize,
) -> c_int {
    status(|| {
        SKBS.change(Token::of(skb), |packet| {
            let taken =
                claim(Token::of(buf))?.give(|buffer| match takes(packet, buffer.len(), offset, len) {
                    Ok(()) => Ok(buffer),
                    Err(error) => Err((buffer, error)),
                })?;
            append(packet, taken, offset, len)
        })
    })
}

/// Appends `len` bytes at `offset` in a shared buffer to the packet, as a fragment. The packet is one more
/// reader of the buffer. Linux: skb_add_rx_frag, page_pool_ref_page.
///
/// Thread: any, one at a time per packet.
/// Ownership: the shared handle stays the caller's.
/// Errors: as pagepool_skb_add_buf.
/// Cost: two locks and one atomic operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_add_shared(
    skb: *mut SkbHandle,
    shared: *mut SharedHandle,
    offset: usize,
    len: usize,
) -> c_int {
    status(|| {
        let reader = SHARED_BUFS.get(Token::of(shared))?.shared;
        SKBS.change(Token::of(skb), |packet| {
            takes(packet, SharedBuf::len(&reader), offset, len)?;
            append(packet, reader, offset, len)
        })
    })
}

/// The callback that frees lent memory.
type FreeCallback = Option<unsafe extern "C" fn(arg: *mut c_void, start: *mut c_void, len: usize)>;

/// Memory that the caller lends until this is dropped.
struct LentMemory {
    start: *mut u8,
    len: usize,
    free: FreeCallback,
    arg: *mut c_void,
}

// SAFETY: the caller lends the memory, and the callback's argument, to any thread.
unsafe impl Send for LentMemory {}
// SAFETY: the caller lends the memory to any thread, and its bytes are only read.
unsafe impl Sync for LentMemory {}

impl AsRef<[u8]> for LentMemory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller lends these bytes for reading until the callback is called.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the caller's callback, with its argument and the lent memory, once.
            uncancelled(|| unsafe { free(self.arg, self.start.cast(), self.len) });
        }
    }
}

/// Appends `len` bytes of the caller's memory to the packet, as a fragment that is only read. After the last
/// use of the bytes by any packet the library calls `free` once, with `arg` and the memory, in the call that
/// ended the use: a release, a pull, a trim or a copy into the head. `free` may use the library, except for
/// that packet (-EBUSY). It may be NULL for memory that stays forever. Linux: ubuf_info.
///
/// Thread: any, one at a time per packet.
/// Ownership: the bytes must stay unchanged until `free` is called, on any thread. If the call fails, the
///     memory stays the caller's and `free` is not called.
/// Errors: as pagepool_skb_add_buf. -EINVAL for NULL.
/// Cost: the packet's lock; allocates a reference count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_add_memory(
    skb: *mut SkbHandle,
    start: *mut c_void,
    len: usize,
    free: Option<unsafe extern "C" fn(arg: *mut c_void, start: *mut c_void, len: usize)>,
    arg: *mut c_void,
) -> c_int {
    status(|| {
        if start.is_null() {
            return Err(CallError::NULL);
        }
        SKBS.change(Token::of(skb), |packet| {
            takes(packet, len, 0, len)?;
            append(packet, SkbMemory::owned(LentMemory { start: start.cast(), len, free, arg }), 0, len)
        })
    })
}
