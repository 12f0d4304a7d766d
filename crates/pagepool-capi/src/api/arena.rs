//! Arenas: the memory that pools share.

// UNSAFETY: functions with fixed names; callers' structs and places are read and written.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use ::pagepool::{Arena, DeviceMemory, NodeId};

use crate::args::arena_params::{self, ArenaParamsC, PAGEPOOL_BACKING_CALLER, PAGEPOOL_BACKING_DEVICE};
use crate::args::range::out_of_range;
use crate::args::sized::{self, give_text, text};
use crate::error::{CallError, CallResult, status, to_errno};
use crate::handles::opaque::{ArenaHandle, DomainHandle};
use crate::handles::tables::{self, ARENAS, ArenaEntry};
use crate::handles::token::Token;
use crate::oom;

/// Makes an arena: reserves its addresses and commits the first region, or all of it with `commit_all`.
///
/// Thread: any.
/// Ownership: `*arena` is the caller's, to be put once. What `memory` and `arg` point to must live as long as
///     the arena and its pools.
/// Errors: -EINVAL names the field, its value and its range. Otherwise the errno of the system call that
///     failed, and the sentence names the remedy. `*arena` is then unchanged.
/// Cost: a few system calls; with `prefault` or `mlock`, the time to clear the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_arena_create(
    params: *const ArenaParamsC,
    arena: *mut *mut ArenaHandle,
) -> c_int {
    status(|| {
        if arena.is_null() {
            return Err(CallError::null());
        }
        // SAFETY: the caller's struct begins with its size.
        let params = unsafe { sized::read(params, arena_params::LEAST) }?;
        // Beside its large tables, which are asked for in a way that may be refused, an arena has some words
        // per region.
        oom::expect((params.bytes().min(1 << 42) >> 16) as usize + oom::FEW)?;
        // SAFETY: the caller's texts, memory and callback are as the fields say.
        let token = ARENAS.insert(unsafe { make(params) }?)?;
        // SAFETY: not NULL, and the caller's to write.
        unsafe { arena.write(token.handle()) };
        Ok(())
    })
}

/// # Safety
/// What the fields of the params say of texts, memory and callback.
unsafe fn make(params: ArenaParamsC) -> CallResult<ArenaEntry> {
    let here = Arc::new(AtomicU8::new(0));
    if params.backing == PAGEPOOL_BACKING_DEVICE {
        let node = NodeId(u8::try_from(params.node).unwrap_or(0));
        // SAFETY: the caller says that it ends with a zero byte.
        let name = unsafe { text(params.name, "device") };
        let provider = DeviceMemory::new(name, params.bytes(), node)?;
        return Ok(ArenaEntry { provider, arena: None, here });
    }
    // SAFETY: as the caller says.
    let rust = unsafe { params.to_rust(&here) }?;
    let arena = if params.backing == PAGEPOOL_BACKING_CALLER {
        let len = usize::try_from(params.max_bytes)
            .map_err(|_| out_of_range("max_bytes", params.max_bytes, "a length"))?;
        let fits = (params.memory.addr()).checked_add(len).is_some();
        if !fits {
            return Err(out_of_range(
                "max_bytes",
                len,
                "a length that fits the address space behind `memory`",
            ));
        }
        // SAFETY: the caller says that the memory is its own for as long.
        unsafe { Arena::over_caller_memory(params.memory.cast(), len, rust) }?
    } else {
        Arena::new(rust)?
    };
    Ok(ArenaEntry { provider: arena.clone(), arena: Some(arena), here })
}

/// Puts an arena. Its memory goes back to the system with its last pool, or now if it has none.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: system calls if no pool is left.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_put(arena: *mut ArenaHandle) -> c_int {
    status(|| {
        let source = ARENAS.remove(Token::of(arena))?;
        crate::handles::slots::reap();
        drop(source); // with no lock held: domains may go with it
        Ok(())
    })
}

/// Writes one line about the arena into `text`: what it is, and which of the requested features are missing.
/// The line is cut to `len` bytes and ends with a zero byte. Gives the full length.
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
    let done = to_errno(|| {
        let line = tables::arena(Token::of(arena))?.provider.describe();
        // SAFETY: the caller gave room for `len`.
        Ok(unsafe { give_text(text, len, &line) })
    });
    done.unwrap_or_else(i64::from)
}

/// Gives the number of base pages of 4096 bytes that pools have.
///
/// Thread: any.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_pages_out(arena: *mut ArenaHandle) -> i64 {
    let done = to_errno(|| {
        let source = tables::arena(Token::of(arena))?;
        let area = source.provider.area();
        Ok(match &source.arena {
            Some(arena) => arena.pages_out() as i64,
            None => i64::from(area.pages()) - source.provider.available(0) as i64,
        })
    });
    done.unwrap_or_else(i64::from)
}

/// Returns memory to the system: the regions that have no page out and that no domain maps. Gives the number
/// of bytes.
///
/// Thread: any.
/// Errors: -EOPNOTSUPP for device memory. -EINVAL, -ESTALE for a bad handle.
/// Cost: system calls.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_trim(arena: *mut ArenaHandle) -> i64 {
    to_errno(|| Ok(readable(arena)?.trim() as i64)).unwrap_or_else(i64::from)
}

/// Gives the descriptor of a memfd arena, for a peer process. Offsets in the file are offsets in the arena.
///
/// Thread: any.
/// Ownership: the descriptor is the arena's; duplicate it to keep it.
/// Errors: -EOPNOTSUPP for an arena without one. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_memfd(arena: *mut ArenaHandle) -> c_int {
    to_errno(|| {
        let arena = readable(arena)?;
        let none = CallError::fixed(
            libc::EOPNOTSUPP,
            c"this arena has no descriptor: make it with PAGEPOOL_BACKING_MEMFD",
        );
        arena.memfd().map(|fd| fd.as_raw_fd()).ok_or(none)
    })
    .unwrap_or_else(|errno| errno)
}

/// Sets the node on which all threads seem to run, in an arena with pretended nodes. Node 0 is the default.
///
/// Thread: any.
/// Errors: -EINVAL for a node above 255. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_set_current_node(arena: *mut ArenaHandle, nid: c_int) -> c_int {
    status(|| {
        let node = u8::try_from(nid).map_err(|_| out_of_range("nid", nid, "0 to 255"))?;
        tables::arena(Token::of(arena))?.here.store(node, Relaxed);
        Ok(())
    })
}

/// Gives the address of the arena's first byte. Page i begins 4096 * i bytes behind it. NULL for device
/// memory or a bad handle.
///
/// Thread: any.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_base(arena: *mut ArenaHandle) -> *mut std::ffi::c_void {
    let base = to_errno(|| Ok(tables::arena(Token::of(arena))?.provider.area().base()));
    std::ptr::with_exposed_provenance_mut(base.ok().flatten().unwrap_or(0))
}

/// Unmaps all of the arena from a domain whose device has gone, although pools still use it. Buffers that are
/// out stay valid for the CPU. They have no address in the domain any more and are not unmapped again when
/// they return.
///
/// Thread: any.
/// Errors: -ENODEV if the arena is not mapped in the domain. -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock, and the `unmap` of the domain.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_device_gone(arena: *mut ArenaHandle, domain: *mut DomainHandle) -> c_int {
    status(|| {
        let domain = tables::domain(Token::of(domain))?;
        let provider = tables::arena(Token::of(arena))?.provider;
        let none = CallError::fixed(libc::ENODEV, c"the arena is not mapped in that domain");
        if provider.area().device_gone(domain.id()) { Ok(()) } else { Err(none) }
    })
}

fn readable(arena: *mut ArenaHandle) -> CallResult<Arc<Arena>> {
    let refused =
        CallError::fixed(libc::EOPNOTSUPP, c"device memory has no descriptor and cannot be trimmed");
    tables::arena(Token::of(arena))?.arena.ok_or(refused)
}
