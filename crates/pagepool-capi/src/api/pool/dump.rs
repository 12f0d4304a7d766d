//! A text table of the pools of this process.

// UNSAFETY: an exported function; writes through the caller's pointer.
#![expect(unsafe_code)]

use std::ffi::c_char;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use ::pagepool::Inflight;

use crate::args::out::store_text;
use crate::handles::slots::{self, Half, PoolLife};
use crate::handles::view::PoolView;

/// Writes one line for each pool that this process created through this library: name, id, state, where its
/// pages are, counters. A destroyed pool is listed until its last buffer is returned. Cuts the text to `len`
/// bytes and ends it with a zero byte. Returns the full length in bytes, without the zero byte. `text` may be
/// NULL. Linux: the netlink dump of page pools.
///
/// Thread: any.
/// Errors: none.
/// Cost: locks and formats text, pool by pool; nothing on the owners' threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_dump(text: *mut c_char, len: usize) -> i64 {
    let lines = || {
        slots::reap();
        let mut dump = String::new();
        slots::for_each(|life, view| line(&mut dump, life, view));
        let full = dump.len();
        Ok((dump, full))
    };
    // SAFETY: `text` is NULL or the caller's to write for `len` bytes.
    unsafe { store_text(text, len, lines) }
}

fn line(dump: &mut String, life: &PoolLife, view: &PoolView) {
    let state = match &life.half {
        Half::Idle(_) => "unbound",
        Half::Bound if view.no_owner.load(Relaxed) != 0 => "no_owner",
        Half::Bound => "bound",
        Half::Ended => "destroyed",
    };
    let page = view.page_size.load(Relaxed);
    let at = life.handle.inflight();
    let Inflight { total, cache, lanes, ring, frag, out, deferred, uncollected, .. } = at;
    let (name, id, out) = (life.handle.name(), life.handle.id(), out + deferred);
    // Writing into a String does not fail.
    let _ = write!(dump, "{name} id {id} {state} page {page} inflight {total} ");
    let _ = write!(dump, "(cache {cache} lanes {lanes} ring {ring} frag {frag} uncollected {uncollected} ");
    let _ = write!(dump, "out {out})");
    for (name, value) in life.handle.stats().fields() {
        let _ = write!(dump, " {name} {value}");
    }
    dump.push('\n');
}
