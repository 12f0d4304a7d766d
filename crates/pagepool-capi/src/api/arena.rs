//! Arenas: the memory that pools share.

// UNSAFETY: exported functions; reads and writes through callers' pointers.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use ::pagepool::{Arena, DeviceMemory, NodeId};

use crate::args::arena_params::{ArenaParamsC, PAGEPOOL_BACKING_CALLER, PAGEPOOL_BACKING_DEVICE};
use crate::args::out::{store_handle, store_text};
use crate::args::range::{node_of_argument, node_of_field, out_of_range};
use crate::args::sized::{self, text};
use crate::error::{CallError, CallResult, number, status, value_or};
use crate::handles::opaque::{ArenaHandle, DomainHandle};
use crate::handles::slots::reap;
use crate::handles::tables::{ARENAS, ArenaEntry, DOMAINS};
use crate::handles::token::Token;
use crate::oom;

/// Creates an arena: reserves its addresses and commits its first region of 4 MiB, or all of it with
/// `commit_all`.
///
/// Thread: any.
/// Ownership: release `*arena` with pagepool_arena_put. `memory`, `node_of_page` and `arg` must stay valid
///     until the arena and its pools are freed.
/// Errors: -EINVAL names the field, its value and its range. Otherwise the errno of the system call that
///     failed; pagepool_last_error names the remedy. `*arena` is then unchanged.
/// Cost: a few system calls; with `prefault` or `mlock` also the time to clear the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_arena_create(
    params: *const ArenaParamsC,
    arena: *mut *mut ArenaHandle,
) -> c_int {
    let make = || {
        // SAFETY: the caller's struct begins with its size.
        let params = unsafe { sized::read(params) }?;
        oom::expect_arena(params.bytes())?;
        // SAFETY: the caller's texts, memory and callback are as the fields say.
        ARENAS.insert(unsafe { make(params) }?)
    };
    // SAFETY: `arena` is NULL or the caller's to write.
    unsafe { store_handle(arena, make) }
}

/// # Safety
/// Texts, memory and callback are as the fields of `params` require.
unsafe fn make(params: ArenaParamsC) -> CallResult<ArenaEntry> {
    let here = Arc::new(AtomicU8::new(0));
    if params.backing == PAGEPOOL_BACKING_DEVICE {
        let node = node_of_field("node", params.node)?.unwrap_or(NodeId(0));
        if !matches!(params.page_size, 0 | 4096) {
            return Err(out_of_range("page_size", params.page_size, "0 or 4096 for device memory"));
        }
        // SAFETY: the caller guarantees that the name ends with a zero byte.
        let name = unsafe { text(params.name, "device") };
        let provider = DeviceMemory::new(name, params.bytes(), node)?;
        return Ok(ArenaEntry { provider, arena: None, here });
    }
    // SAFETY: the caller's contract is that of `to_rust`.
    let rust = unsafe { params.to_rust(&here) }?;
    let arena = if params.backing == PAGEPOOL_BACKING_CALLER {
        let len = usize::try_from(params.max_bytes).ok();
        let len = len.filter(|&len| params.memory.addr().checked_add(len).is_some()).ok_or_else(|| {
            let must_be = "a length that fits the address space behind `memory`";
            out_of_range("max_bytes", params.max_bytes, must_be)
        })?;
        // SAFETY: the caller guarantees that it owns the memory until the arena and its pools are freed.
        unsafe { Arena::over_caller_memory(params.memory.cast(), len, rust) }?
    } else {
        Arena::new(rust)?
    };
    Ok(ArenaEntry { provider: arena.clone(), arena: Some(arena), here })
}

/// Releases the handle of an arena. The memory is returned to the system now, or when the last pool over the
/// arena is freed.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: system calls if the arena has no pool left.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_put(arena: *mut ArenaHandle) -> c_int {
    status(|| {
        let entry = ARENAS.remove(Token::of(arena))?;
        reap();
        Ok(entry) // dropped with no lock held: this may free domains
    })
}

/// Writes one line about the arena into `text`: its kind of memory and the requested features that are
/// missing. Cuts the line to `len` bytes and ends it with a zero byte. Returns the full length in bytes,
/// without the zero byte. `text` may be NULL.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: formats text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_arena_describe(
    arena: *mut ArenaHandle,
    text: *mut c_char,
    len: usize,
) -> i64 {
    let line = || {
        let line = ARENAS.get(Token::of(arena))?.provider.describe();
        let full = line.len();
        Ok((line, full))
    };
    // SAFETY: the caller gave room for `len` bytes, or NULL.
    unsafe { store_text(text, len, line) }
}

/// Returns the number of base pages (pages of order 0) that pools have taken from the arena.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_pages_out(arena: *mut ArenaHandle) -> i64 {
    number(|| {
        let entry = ARENAS.get(Token::of(arena))?;
        Ok(match &entry.arena {
            Some(arena) => arena.pages_out() as i64,
            None => i64::from(entry.provider.area().pages()) - entry.provider.available(0) as i64,
        })
    })
}

/// Returns free memory to the system: each region that no domain maps and in which no pool has a page. The
/// result is the number of bytes.
///
/// Thread: any.
/// Errors: -EOPNOTSUPP for device memory. -EINVAL, -ESTALE for a bad handle.
/// Cost: system calls.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_trim(arena: *mut ArenaHandle) -> i64 {
    number(|| Ok(readable(arena)?.trim() as i64))
}

/// Returns the file descriptor of a memfd arena, for a peer process. Offsets in the file are offsets in the
/// arena.
///
/// Thread: any.
/// Ownership: the descriptor is the arena's; duplicate it to keep it longer.
/// Errors: -EOPNOTSUPP for an arena without a descriptor. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_memfd(arena: *mut ArenaHandle) -> c_int {
    const NONE: CallError = CallError::fixed(
        libc::EOPNOTSUPP,
        c"this arena has no descriptor: create it with PAGEPOOL_BACKING_MEMFD",
    );
    number(|| readable(arena)?.memfd().map(|fd| fd.as_raw_fd()).ok_or(NONE))
}

/// Sets the node on which all threads appear to run, in an arena with simulated nodes (`nodes`). Initially it
/// is node 0.
///
/// Thread: any.
/// Errors: -EINVAL for a node above 255. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_set_current_node(arena: *mut ArenaHandle, nid: c_int) -> c_int {
    status(|| {
        let node = node_of_argument("nid", nid)?.ok_or_else(|| out_of_range("nid", nid, "0 to 255"))?;
        ARENAS.get(Token::of(arena))?.here.store(node.0, Relaxed);
        Ok(())
    })
}

/// Returns the address of the arena's first byte. Page i begins i times the arena's `page_size` from there.
/// NULL for device memory (-EOPNOTSUPP) or a bad handle (-EINVAL, -ESTALE).
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_base(arena: *mut ArenaHandle) -> *mut std::ffi::c_void {
    let base = || ARENAS.get(Token::of(arena))?.provider.area().base().ok_or(CallError::UNREADABLE);
    std::ptr::with_exposed_provenance_mut(value_or(0, base))
}

/// Unmaps the arena from a domain whose device is gone, even while pools use it. The CPU can still use
/// buffers that are out; they lose their address in the domain, and are not unmapped again when they are
/// returned.
///
/// Thread: any.
/// Errors: -ENODEV if the arena is not mapped in the domain. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock, and the `unmap` of the domain.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_device_gone(arena: *mut ArenaHandle, domain: *mut DomainHandle) -> c_int {
    const NONE: CallError = CallError::fixed(libc::ENODEV, c"the arena is not mapped in that domain");
    status(|| {
        let domain = DOMAINS.get(Token::of(domain))?;
        let provider = ARENAS.get(Token::of(arena))?.provider;
        if provider.area().device_gone(domain.id()) { Ok(()) } else { Err(NONE) }
    })
}

fn readable(arena: *mut ArenaHandle) -> CallResult<Arc<Arena>> {
    const DEVICE: CallError =
        CallError::fixed(libc::EOPNOTSUPP, c"device memory has no descriptor and cannot be trimmed");
    ARENAS.get(Token::of(arena))?.arena.ok_or(DEVICE)
}
