//! The tables that the header's inline functions read, if library and header have the same layout.

// UNSAFETY: an exported function.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

use ::pagepool::{CacheHead, LifeLane, LifeTable, NEXT_LIFE};

use crate::handles::binding::here;
use crate::handles::claim::put_away;
use crate::handles::directory::{DIRECTORY, DirectoryRow, ROW_SHIFT};
use crate::handles::there::{self, There};
use crate::handles::token::{KIND_BITS, Token};
use crate::handles::view::{MAX_POOLS, PoolView, VIEWS};

/// What the inline functions know of the tables: a C expression and its value. pagepool-header has a C
/// compiler compare them.
pub const KNOWN: &[(&str, usize)] = &[
    ("offsetof(struct pagepool_inline_, directory)", offset_of!(InlineC, directory)),
    ("offsetof(struct pagepool_inline_, view_mask)", offset_of!(InlineC, view_mask)),
    ("offsetof(struct pagepool_inline_, note)", offset_of!(InlineC, note)),
    ("offsetof(struct pagepool_inline_, put_away)", offset_of!(InlineC, put_away)),
    ("offsetof(struct pagepool_inline_, note_away)", offset_of!(InlineC, note_away)),
    ("sizeof(struct pagepool_row_)", size_of::<DirectoryRow>()),
    ("offsetof(struct pagepool_row_, view)", offset_of!(DirectoryRow, view)),
    ("offsetof(struct pagepool_row_, kind)", offset_of!(DirectoryRow, kind)),
    ("offsetof(struct pagepool_row_, outs)", offset_of!(DirectoryRow, words)),
    ("offsetof(struct pagepool_row_, memory)", offset_of!(DirectoryRow, memory)),
    ("offsetof(struct pagepool_row_, base_page)", offset_of!(DirectoryRow, base_page)),
    ("offsetof(struct pagepool_elsewhere_, base)", offset_of!(There, base)),
    ("offsetof(struct pagepool_elsewhere_, pages)", offset_of!(There, pages)),
    ("offsetof(struct pagepool_elsewhere_, outs)", offset_of!(There, outs)),
    ("offsetof(struct pagepool_elsewhere_, view)", offset_of!(There, view)),
    ("offsetof(struct pagepool_elsewhere_, token)", offset_of!(There, token)),
    ("offsetof(struct pagepool_elsewhere_, hand)", offset_of!(There, hand)),
    ("offsetof(struct pagepool_elsewhere_, lane)", offset_of!(There, lane)),
    ("offsetof(struct pagepool_elsewhere_, after_sending)", offset_of!(There, after_sending)),
    ("offsetof(struct pagepool_hand_, lanes)", LifeLane::PLACES.hand),
    ("offsetof(struct pagepool_lane_, next)", LifeLane::PLACES.next),
    ("offsetof(struct pagepool_lane_, until)", LifeLane::PLACES.until),
    ("offsetof(struct pagepool_lane_, phase)", LifeLane::PLACES.phase),
    ("offsetof(struct pagepool_lane_, flags)", LifeLane::PLACES.flags),
    ("offsetof(struct pagepool_lane_, to_life)", LifeLane::PLACES.to_life),
    ("sizeof(struct pagepool_view_)", size_of::<PoolView>()),
    ("offsetof(struct pagepool_view_, token)", offset_of!(PoolView, token)),
    ("offsetof(struct pagepool_view_, owner)", offset_of!(PoolView, owner)),
    ("offsetof(struct pagepool_view_, base)", offset_of!(PoolView, base)),
    ("offsetof(struct pagepool_view_, pages)", offset_of!(PoolView, pages)),
    ("offsetof(struct pagepool_view_, cache)", offset_of!(PoolView, cache)),
    ("offsetof(struct pagepool_view_, memory)", offset_of!(PoolView, memory)),
    ("offsetof(struct pagepool_view_, base_page)", offset_of!(PoolView, base_page)),
    ("offsetof(struct pagepool_view_, no_owner)", offset_of!(PoolView, no_owner)),
    (
        "offsetof(struct pagepool_view_, lives)",
        offset_of!(PoolView, guard) + offset_of!(LifeTable, guarded.lives),
    ),
    (
        "offsetof(struct pagepool_view_, outs)",
        offset_of!(PoolView, guard) + offset_of!(LifeTable, guarded.outs),
    ),
    ("offsetof(struct pagepool_view_, limit)", offset_of!(PoolView, guard) + offset_of!(LifeTable, limit)),
    ("offsetof(struct pagepool_view_, busy)", offset_of!(PoolView, guard) + LifeTable::BUSY_AT),
    ("offsetof(struct pagepool_cache_, pages)", offset_of!(CacheHead, entries)),
    ("offsetof(struct pagepool_cache_, count)", offset_of!(CacheHead, count)),
    ("offsetof(struct pagepool_cache_, alloc_fast)", offset_of!(CacheHead, alloc_fast)),
    ("offsetof(struct pagepool_cache_, recycle_cached)", offset_of!(CacheHead, recycle_cached)),
];

/// The number of this layout, a digest of all of it. pagepool-header writes it into the header for each
/// `@LAYOUT@` in inline.h.
pub const LAYOUT: u32 =
    digest(KNOWN, &[KIND_BITS as u64, ROW_SHIFT as u64, ENTRY_BYTES, NEXT_LIFE as u64, MEANING]);

const ENTRY_BYTES: u64 = size_of::<AtomicU32>() as u64;

/// Raised if the layout stays, but the inline functions must use it differently.
const MEANING: u64 = 3;

/// FNV-1a of numbers.
const fn digest(known: &[(&str, usize)], more: &[u64]) -> u32 {
    let (mut digest, mut at) = (0x811c_9dc5, 0);
    while at < known.len() + more.len() {
        let number = if at < known.len() { known[at].1 as u64 } else { more[at - known.len()] };
        let bytes = number.to_le_bytes();
        let mut byte = 0;
        while byte < bytes.len() {
            digest = (digest ^ bytes[byte] as u32).wrapping_mul(0x0100_0193);
            byte += 1;
        }
        at += 1;
    }
    digest
}

/// Tables for the inline functions of this header, not for programs.
#[repr(C)]
pub struct InlineC {
    views: *const c_void,
    directory: *const c_void,
    view_mask: u64,
    /// Notes where the calling thread keeps the pool that it used last; the library clears that place when
    /// the thread stops being the owner. Returns 0 if 16 such places of the thread are noted, the limit. A
    /// field, not an exported function, so that it belongs to the library that has the tables.
    note: extern "C" fn(here: *mut c_void) -> c_int,
    /// Returns a buffer as pagepool_buf_put does, on a thread that does not own its pool.
    put_away: extern "C" fn(buf: *mut c_void) -> c_int,
    /// Keeps the pool of a buffer in the thread's record of a pool to which it returns buffers but which it
    /// does not own. Returns the record, whose address never changes.
    note_away: extern "C" fn(buf: *mut c_void) -> *const c_void,
}

// SAFETY: numbers, functions, and addresses of statics that all threads share.
unsafe impl Sync for InlineC {}

/// Returns the tables for the inline functions of this header; not for programs. NULL if library and header
/// have different layouts; the inline functions then call the library. Each compiled file calls it once,
/// before main.
///
/// Thread: any.
/// Cost: a comparison.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_inline_tables(layout: u32) -> *const InlineC {
    static TABLES: InlineC = InlineC {
        views: (&raw const VIEWS).cast(),
        directory: (&raw const DIRECTORY).cast(),
        view_mask: MAX_POOLS as u64 - 1,
        note: register,
        put_away: put_elsewhere,
        note_away,
    };
    if layout == LAYOUT { &raw const TABLES } else { std::ptr::null() }
}

extern "C" fn put_elsewhere(buf: *mut c_void) -> c_int {
    put_away(Token::of(buf))
}

extern "C" fn note_away(buf: *mut c_void) -> *const c_void {
    there::note(Token::of(buf));
    there::place().cast()
}

extern "C" fn register(here: *mut c_void) -> c_int {
    c_int::from(here::register(here.cast()))
}
