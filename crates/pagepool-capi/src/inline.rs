//! The tables that the header's inline functions read, if library and header have the same layout.

// UNSAFETY: a function with a fixed name.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};

use crate::handles::binding::here;
use crate::handles::directory::DIRECTORY;
use crate::handles::view::{MAX_POOLS, VIEWS};

/// Which layout of views, directory and entries this is. Raised with every change of one of them; inline.h
/// has its own.
const LAYOUT: u32 = 6;

/// For the inline functions of this header, not for programs.
#[repr(C)]
pub struct InlineC {
    views: *const c_void,
    directory: *const c_void,
    view_mask: u64,
    /// Has the library know where the calling thread keeps the pool that it used last: it takes a pool back
    /// there when the thread stops being its owner. 0 if it knows 16 such places of the thread, the limit. In
    /// this struct and no function of its own, so that it is of the library that has the tables.
    note: extern "C" fn(here: *mut c_void) -> c_int,
}

// SAFETY: numbers, and addresses of statics which are themselves shared by all threads.
unsafe impl Sync for InlineC {}

/// For the inline functions of this header, not for programs: returns their tables. NULL if library and
/// header have different layouts; the inline functions then call the library. Each compiled file asks once,
/// before main.
///
/// Thread: any.
/// Cost: an address.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_inline_tables(layout: u32) -> *const InlineC {
    static TABLES: InlineC = InlineC {
        views: (&raw const VIEWS).cast(),
        directory: (&raw const DIRECTORY).cast(),
        view_mask: MAX_POOLS as u64 - 1,
        note,
    };
    if layout == LAYOUT { &raw const TABLES } else { std::ptr::null() }
}

extern "C" fn note(here: *mut c_void) -> c_int {
    c_int::from(here::note(here.cast()))
}
