//! Packets for stacks: head and fragments, clones, memory that calls back.

// UNSAFETY: functions with fixed names; callers' places are read and written, and their callbacks called.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ::pagepool::{MAX_FRAGS, PageBuf, SharedBuf, SkBuff, SkbCache, SkbMemory, XdpBuff};
use libc::iovec;

use crate::error::{Outcome, Refusal, answer, or, status};
use crate::handles::claim::claim;
use crate::handles::opaque::{BufHandle, DomainHandle, SharedHandle, SkbCacheHandle, SkbHandle};
use crate::handles::skb_rows::{self, Vacant, with};
use crate::handles::table::Table;
use crate::handles::token::{Kind, Token};
use crate::oom;

static CACHES: Table<SkbCache> = Table::new(Kind::SkbCache);

/// Makes room for the descriptions of so many packets, 1 to 16777216; clones of a packet share one. 1100 bytes each, and as
/// much memory is committed as is used. Linux: skbuff_cache.
///
/// Thread: any. Ownership: `*cache` is the caller's, to be destroyed once. Errors: -EINVAL, -ENOMEM. Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_cache_create(packets: usize, cache: *mut *mut SkbCacheHandle) -> c_int {
    status(|| {
        if cache.is_null() {
            return Err(Refusal::null());
        }
        oom::expect(oom::FEW)?;
        let token = CACHES.insert(SkbCache::new(packets)?)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { cache.write(token.handle()) };
        Ok(())
    })
}

/// Lets go of a cache. Packets that are out stay valid; the last of them frees it.
///
/// Thread: any. Ownership: the handle is over. Errors: -EINVAL, -ESTALE. Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cache_destroy(cache: *mut SkbCacheHandle) -> c_int {
    status(|| {
        drop(CACHES.remove(Token::of(cache))?);
        Ok(())
    })
}

fn cache_of(cache: *mut SkbCacheHandle) -> Outcome<SkbCache> {
    CACHES.with(Token::of(cache), SkbCache::clone)
}

/// # Safety
/// `to` is NULL or writable.
unsafe fn give(to: *mut *mut SkbHandle, make: impl FnOnce() -> Outcome<SkBuff>) -> Outcome<()> {
    if to.is_null() {
        return Err(Refusal::null());
    }
    let row = Vacant::take()?;
    let token = row.fill(make()?)?;
    // SAFETY: not NULL, and writable as the caller says.
    unsafe { to.write(token.handle()) };
    Ok(())
}

// ---- Making ----------------------------------------------------------------------------------------------------

/// The packet of `len` bytes at `offset` in a buffer, without a copy: the buffer is its head, what lies before the bytes is
/// headroom. A buffer that the CPU cannot read becomes its first fragment. Linux: build_skb.
///
/// Thread: whoever has the buffer. Ownership: the buffer's handle is over, unless it is refused; `*skb` is the caller's, to be
/// freed once. Errors: -EINVAL for bytes that the buffer has not, or that lie in its tailroom; -ENOBUFS when the cache is
/// exhausted; -EINVAL, -ESTALE for a bad handle. Cost: three locks that are held for moments, and one compare-and-swap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_from_buf(
    cache: *mut SkbCacheHandle,
    buf: *mut BufHandle,
    offset: usize,
    len: usize,
    skb: *mut *mut SkbHandle,
) -> c_int {
    let make = || {
        let cache = cache_of(cache)?;
        claim(Token::of(buf))?.give(|buffer| over(&cache, buffer, offset, len))
    };
    // SAFETY: the caller's place.
    status(|| unsafe { give(skb, make) })
}

fn over(cache: &SkbCache, buffer: PageBuf, offset: usize, len: usize) -> Result<SkBuff, (PageBuf, Refusal)> {
    let packet = XdpBuff::new(buffer, offset, len).map_err(|buffer| {
        let refusal = beyond(offset, len, buffer.len());
        (buffer, refusal)
    })?;
    let exhausted = || Refusal::from(::pagepool::SkbError::Exhausted);
    SkBuff::from_buff(cache, packet).map_err(|packet| (packet.into_buffer(), exhausted()))
}

#[cold]
fn beyond(offset: usize, len: usize, size: usize) -> Refusal {
    let text =
        format!("{len} bytes at {offset} are not within a buffer of {size} bytes and before its tailroom");
    Refusal::made(libc::EINVAL, text)
}

/// An empty packet: room for `len` bytes in its head, and `headroom` before them, in ordinary memory. Linux: alloc_skb and
/// skb_reserve.
///
/// Thread: any. Ownership: `*skb` is the caller's, to be freed once. Errors: -ENOBUFS when the cache is exhausted; -ENOMEM;
/// -EINVAL, -ESTALE. Cost: as pagepool_skb_from_buf; allocates where headroom and `len` are more than 512 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_alloc(
    cache: *mut SkbCacheHandle,
    headroom: usize,
    len: usize,
    skb: *mut *mut SkbHandle,
) -> c_int {
    let make = || Ok(SkBuff::with_capacity(&cache_of(cache)?, headroom, len)?);
    // SAFETY: the caller's place.
    status(|| unsafe { give(skb, make) })
}

/// Another packet with the same data; its ends are its own. What they share goes home with the last of them. While there are
/// clones nobody writes the bytes. Linux: skb_clone.
///
/// Thread: whoever has the packet. Ownership: `*clone` is the caller's, to be freed once. Errors: -EINVAL, -ESTALE, -EBUSY, -ENOMEM.
/// Cost: two locks that are held for moments, and one atomic operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_clone(skb: *mut SkbHandle, clone: *mut *mut SkbHandle) -> c_int {
    let make = || with(Token::of(skb), |packet| Ok(packet.clone()));
    // SAFETY: the caller's place.
    status(|| unsafe { give(clone, make) })
}

/// Ends a packet. If it is the last of its clones, every buffer goes home as by pagepool_buf_put, and callbacks of lent
/// memory are called. Linux: kfree_skb.
///
/// Thread: any. Ownership: the handle is over. Errors: -ESTALE for one that was freed before; -EBUSY while another call has it;
/// -EINVAL. Cost: two locks that are held for moments, and what each buffer costs.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_free(skb: *mut SkbHandle) -> c_int {
    status(|| {
        drop(skb_rows::remove(Token::of(skb))?); // with no lock held
        Ok(())
    })
}

// ---- Adding memory ---------------------------------------------------------------------------------------------

/// Whether a packet takes `len` bytes at `offset` of memory of `size` bytes; if not, why.
fn takes(packet: &SkBuff, size: usize, offset: usize, len: usize) -> Outcome<()> {
    if packet.is_cloned() {
        return Err(::pagepool::SkbError::Cloned.into());
    }
    if packet.nr_frags() >= MAX_FRAGS {
        return Err(Refusal::fixed(
            libc::ENOSPC,
            c"the packet has 17 fragments: linearize it, or make another one",
        ));
    }
    let within = len > 0 && offset.checked_add(len).is_some_and(|end| end <= size && end < u32::MAX as usize);
    if !within || packet.len().checked_add(len).is_none_or(|sum| sum >= u32::MAX as usize) {
        let text =
            format!("{len} bytes at {offset} are none, not within {size} bytes, or with the packet 4 GiB");
        return Err(Refusal::made(libc::EINVAL, text));
    }
    Ok(())
}

/// Appends memory that `takes` said yes to.
fn append(packet: &mut SkBuff, memory: impl Into<SkbMemory>, offset: usize, len: usize) -> Outcome<()> {
    const UNEXPECTED: Refusal = Refusal::fixed(libc::EIO, c"an error inside pagepool: please report it");
    packet.add_frag(memory, offset, len).map_err(|_| UNEXPECTED)
}

/// Appends `len` bytes at `offset` in a buffer, as a fragment: a packet has up to 17. Linux: skb_add_rx_frag.
///
/// Thread: whoever has both. Ownership: the buffer's handle is over, unless it is refused. Errors: -EINVAL for bytes that it has
/// not; -ENOSPC beyond 17; -EBUSY while a clone shares the data; -EINVAL, -ESTALE. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_add_buf(
    skb: *mut SkbHandle,
    buf: *mut BufHandle,
    offset: usize,
    len: usize,
) -> c_int {
    status(|| {
        with(Token::of(skb), |packet| {
            let taken =
                claim(Token::of(buf))?.give(|buffer| match takes(packet, buffer.len(), offset, len) {
                    Ok(()) => Ok(buffer),
                    Err(refusal) => Err((buffer, refusal)),
                })?;
            append(packet, taken, offset, len)
        })
    })
}

/// As pagepool_skb_add_buf, of a buffer with other readers: the packet becomes one more of them.
///
/// Thread: whoever has both. Ownership: the shared handle stays the caller's. Errors: as that. Cost: two locks, one atomic
/// operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_add_shared(
    skb: *mut SkbHandle,
    shared: *mut SharedHandle,
    offset: usize,
    len: usize,
) -> c_int {
    status(|| {
        let reader = crate::api::buf::shared::another(Token::of(shared))?;
        with(Token::of(skb), |packet| {
            takes(packet, SharedBuf::len(&reader), offset, len)?;
            append(packet, reader, offset, len)
        })
    })
}

/// What takes lent memory back.
type FreeC = Option<unsafe extern "C" fn(arg: *mut c_void, start: *mut c_void, len: usize)>;

/// Memory of the caller's, until it is dropped.
struct Lent {
    start: *mut u8,
    len: usize,
    free: FreeC,
    arg: *mut c_void,
}

// SAFETY: the caller lends the memory, and the callback's argument, to any thread.
unsafe impl Send for Lent {}
// SAFETY: as above, and the bytes are only read.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller lends so many bytes, to be read until the callback is called.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the caller's callback, with what it was lent with, once.
            unsafe { free(self.arg, self.start.cast(), self.len) };
        }
    }
}

/// Appends memory of the caller's, as a fragment that is only read. When the last packet has let go of it, `free` is called
/// with `arg` and the memory, once, inside whichever call that was. The callback may use the library, but for the packet that
/// the call is about, which is -EBUSY. `free` may be NULL for memory that stays for ever. Linux: ubuf_info.
///
/// Thread: whoever has the packet. Ownership: the bytes must stay as they are until `free` is called, which may be on any
/// thread; refused, the memory stays the caller's and `free` is not called. Errors: as pagepool_skb_add_buf, and -EINVAL for
/// NULL. Cost: a lock of the packet's own; allocates a count.
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
            return Err(Refusal::null());
        }
        with(Token::of(skb), |packet| {
            takes(packet, len, 0, len)?;
            append(packet, SkbMemory::owned(Lent { start: start.cast(), len, free, arg }), 0, len)
        })
    })
}

// ---- Looking ---------------------------------------------------------------------------------------------------

fn ask(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> usize) -> usize {
    or(0, || with(Token::of(skb), |packet| Ok(what(packet))))
}

/// Bytes of the packet; 0 for a bad handle. Linux: skb->len.
///
/// Thread: whoever has the packet. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_len(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.len())
}

/// Bytes in its head; 0 for a bad handle. Linux: skb_headlen.
///
/// Thread and cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_head_len(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.head_len())
}

/// Bytes before the head's data; 0 for a bad handle. Linux: skb_headroom.
///
/// Thread and cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_headroom(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.headroom())
}

/// Bytes behind the head's data that the packet may grow into; 0 when it has fragments, or for a bad handle.
/// Linux: skb_tailroom.
///
/// Thread and cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_tailroom(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.tailroom())
}

/// Bytes of memory that the packet keeps from other uses; 0 for a bad handle. Linux: skb->truesize.
///
/// Thread: whoever has the packet. Cost: a lock of the packet's own, and a look at every fragment.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_truesize(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.truesize())
}

/// How many fragments it has; 0 for a bad handle.
///
/// Thread: whoever has the packet. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_nr_frags(skb: *mut SkbHandle) -> usize {
    ask(skb, |packet| packet.nr_frags())
}

/// 1 if another packet shares its data, 0 if not, else -EINVAL, -ESTALE or -EBUSY. Linux: skb_cloned.
///
/// Thread and cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_is_cloned(skb: *mut SkbHandle) -> c_int {
    let done = answer(|| with(Token::of(skb), |packet| Ok(c_int::from(packet.is_cloned()))));
    done.unwrap_or_else(|errno| errno)
}

/// The head's data: pagepool_skb_head_len bytes, to be written only while the packet is not cloned. NULL for a bad handle.
/// Linux: skb->data.
///
/// Thread: whoever has the packet. Ownership: the address holds until the head is changed or the packet freed. Cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_data(skb: *mut SkbHandle) -> *mut c_void {
    let start = |packet: &mut SkBuff| {
        if packet.is_cloned() {
            return packet.data().as_ptr().cast_mut();
        }
        packet.data_mut().map_or(null_mut(), <[u8]>::as_mut_ptr)
    };
    or(null_mut(), || with(Token::of(skb), |packet| Ok(start(packet)))).cast()
}

/// Where the packet's bytes lie, in order: the head, if it has bytes, and every fragment. Writes the first `n` of them into
/// `iov`, as sendmsg wants them, to be read only; gives how many there are, at most 18. `iov` may be NULL where `n` is 0.
/// Linux: skb_to_sgvec.
///
/// Thread: whoever has the packet. Ownership: addresses hold until the packet is changed or freed. Errors: -EOPNOTSUPP for memory
/// that the CPU cannot read; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_iovec(skb: *mut SkbHandle, iov: *mut iovec, n: usize) -> i64 {
    let done = answer(|| {
        if iov.is_null() && n > 0 {
            return Err(Refusal::null());
        }
        with(Token::of(skb), |packet| {
            let chunks = packet.chunks().ok_or(::pagepool::SkbError::Unreadable)?;
            let mut count = 0;
            for chunk in chunks {
                if count < n {
                    let one = iovec { iov_base: chunk.as_ptr().cast_mut().cast(), iov_len: chunk.len() };
                    // SAFETY: the caller gave room for `n`.
                    let at = unsafe { iov.add(count) };
                    // SAFETY: as above.
                    unsafe { at.write(one) };
                }
                count += 1;
            }
            Ok(count as i64)
        })
    });
    done.unwrap_or_else(i64::from)
}

/// Where a device finds the bytes of one segment, in that domain: segment 0 is the head, the others are fragments from 1 on.
/// UINT64_MAX for memory that is not mapped there, a segment that there is not, or a bad handle.
///
/// Thread: whoever has the packet. Cost: two locks, and a lookup.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_dma_addr(
    skb: *mut SkbHandle,
    segment: usize,
    domain: *mut DomainHandle,
) -> u64 {
    const NONE: Refusal =
        Refusal::fixed(libc::EOPNOTSUPP, c"that segment is not mapped in that domain, or there is none");
    or(u64::MAX, || {
        let id = crate::api::domain::domain(Token::of(domain))?.id();
        with(Token::of(skb), |packet| {
            let at = match segment.checked_sub(1) {
                None => packet.head_dma_addr_in(id),
                Some(at) => packet.frags().get(at).and_then(|frag| frag.dma_addr_in(id)),
            };
            at.map(|at| at.0).ok_or(NONE)
        })
    })
}

/// Copies `len` bytes from `offset` in the packet, wherever they lie. Linux: skb_copy_bits.
///
/// Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -EOPNOTSUPP for memory that the CPU cannot read;
/// -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_copy_bits(
    skb: *mut SkbHandle,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> c_int {
    status(|| {
        if len == 0 {
            return with(Token::of(skb), |packet| Ok(packet.copy_bits(offset, &mut [])?));
        }
        with(Token::of(skb), |packet| {
            if to.is_null() || len > packet.len() {
                return Err(if to.is_null() {
                    Refusal::null()
                } else {
                    ::pagepool::SkbError::TooShort.into()
                });
            }
            // SAFETY: the caller gave room for `len` bytes, which are initialised or only written.
            let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
            Ok(packet.copy_bits(offset, to)?)
        })
    })
}

// ---- Changing --------------------------------------------------------------------------------------------------

/// # Safety
/// `at` is NULL or writable.
unsafe fn grow(
    skb: *mut SkbHandle,
    at: *mut *mut c_void,
    more: impl FnOnce(&mut SkBuff) -> Outcome<*mut u8>,
) -> c_int {
    status(|| {
        let start = with(Token::of(skb), more)?;
        if !at.is_null() {
            // SAFETY: not NULL, and writable as the caller says.
            unsafe { at.write(start.cast()) };
        }
        Ok(())
    })
}

/// Grows the packet by `len` bytes at its front, out of the headroom; `*at`, unless NULL, becomes their address, and what is
/// there is whatever was. Linux: skb_push.
///
/// Thread: whoever has the packet. Errors: -ENOSPC without so much headroom (pagepool_skb_cow_head makes it); -EBUSY while a clone
/// shares the data; -EINVAL, -ESTALE. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_push(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    unsafe { grow(skb, at, |packet| Ok(packet.push(len)?.as_mut_ptr())) }
}

/// The same at the end of its head, out of the tailroom; none is left once it has fragments. Linux: skb_put.
///
/// Thread, errors, cost: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_skb_put(skb: *mut SkbHandle, len: usize, at: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place.
    unsafe { grow(skb, at, |packet| Ok(packet.put(len)?.as_mut_ptr())) }
}

fn change(skb: *mut SkbHandle, what: impl FnOnce(&mut SkBuff) -> Result<(), ::pagepool::SkbError>) -> c_int {
    status(|| with(Token::of(skb), |packet| Ok(what(packet)?)))
}

/// Cuts `len` bytes off its front. Fragments that are used up go home at once. Linux: pskb_pull.
///
/// Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -ENOBUFS, -ENOMEM where a clone's fragments would
/// need a description of their own; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_pull(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.pull(len))
}

/// Cuts its end off, so that `len` bytes stay. Does nothing where it has no more. Linux: pskb_trim.
///
/// Thread, errors, cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_trim(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.trim(len))
}

/// Makes its first `len` bytes lie in the head, by a copy if need be. Linux: pskb_may_pull.
///
/// Thread: whoever has the packet. Errors: -EINVAL where it has not so many; -EOPNOTSUPP for memory that the CPU cannot read;
/// -ENOBUFS, -ENOMEM; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the copy of what was not there.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_make_linear(skb: *mut SkbHandle, len: usize) -> c_int {
    change(skb, |packet| packet.make_linear(len))
}

/// Gives a clone a head of its own, in ordinary memory, and a reference to every fragment, so that it may be written. Does
/// nothing to a packet that is not cloned. Linux: skb_unclone.
///
/// Thread: whoever has the packet. Errors: -ENOBUFS, -ENOMEM; -EINVAL, -ESTALE, -EBUSY. Cost: a lock of the packet's own, and the
/// copy of the head.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_unclone(skb: *mut SkbHandle) -> c_int {
    change(skb, SkBuff::unclone)
}

/// The same, and sees to so much headroom. Linux: skb_cow_head.
///
/// Thread, errors, cost: as above.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_skb_cow_head(skb: *mut SkbHandle, headroom: usize) -> c_int {
    change(skb, |packet| packet.cow_head(headroom))
}
