//! The pools of this process, as a table for people.

// UNSAFETY: a function with a fixed name; the caller's place is written.
#![expect(unsafe_code)]

use std::ffi::c_char;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use crate::args::sized::give_text;
use crate::error::to_errno;
use crate::handles::slots::{self, Half, PoolLife};
use crate::handles::view::PoolView;

/// Writes a line per pool of this process that was made through this library: name, id, state, where its
/// pages are, its counters. A destroyed pool is listed until its last buffer returns. The text is cut to
/// `len` bytes and ends with a zero byte. Gives the full length. `text` may be NULL. Linux: the netlink dump
/// of page pools.
///
/// Thread: any.
/// Errors: none.
/// Cost: locks and formats, pool by pool; nothing on the owners' threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_dump(text: *mut c_char, len: usize) -> i64 {
    let done = to_errno(|| {
        slots::reap();
        let mut dump = String::new();
        slots::for_each(|life, view| line(&mut dump, life, view));
        // SAFETY: the caller gave room for `len`.
        Ok(unsafe { give_text(text, len, &dump) })
    });
    done.unwrap_or_else(i64::from)
}

fn line(dump: &mut String, life: &PoolLife, view: &PoolView) {
    let state = match &life.half {
        Half::Idle(_) => "unbound",
        Half::Bound => "bound",
        Half::Ending | Half::Ended(_) => "destroyed",
    };
    let at = life.handle.inflight();
    let page = view.page_size.load(Relaxed);
    // Writing into a String does not fail.
    let _ = write!(
        dump,
        "{} id {} {state} page {page} inflight {} (cache {} lanes {} ring {} frag {} out {})",
        life.handle.name(),
        life.handle.id(),
        at.total,
        at.cache,
        at.lanes,
        at.ring,
        at.frag,
        at.out + at.deferred
    );
    for (name, value) in view.and_fast_paths(life.handle.stats()).fields() {
        let _ = write!(dump, " {name} {value}");
    }
    dump.push('\n');
}
