//! Showing the pools of this process, and what belongs to them, to others.

// UNSAFETY: functions with fixed names; a caller's text is read, and a box is kept as its address.
#![expect(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use ::pagepool::{Publication, PublishedEntry, publish, publish_entry, sign_of_life, uncancelled};

use crate::args::entry_params::{self, EntryParamsC};
use crate::args::range::out_of_range;
use crate::args::sized::{self, text};
use crate::error::{CallError, CallResult, number, status};
use crate::handles::slots;
use crate::handles::token::Token;
use crate::oom;

/// What this process published, in a box, until it takes it back. No lock: a child of fork would wait for one
/// for ever that a thread of its parent held, which the child does not have.
static PUBLICATION: AtomicPtr<Publication> = AtomicPtr::new(null_mut());
/// The process that published.
static PUBLISHER: AtomicU32 = AtomicU32::new(0);

/// Shows the pools of this process to others of the same user: counters, places of pages, parameters. They
/// are in a file in the folder `$PAGEPOOL_RUN`, else /run/pagepool for root, else
/// `$XDG_RUNTIME_DIR/pagepool`. A buffer costs at most one instruction more. If the process is killed the
/// file stays, and says what it had. Call it before the first pool; an arena that is made earlier is not
/// shown. A process publishes once. A child of fork(2) publishes nothing. The folder should be on tmpfs: on
/// another file system the first store to a page after it was written to the disk takes a page fault, and
/// where fallocate(2) reserves nothing a full one ends the process by SIGBUS.
///
/// Thread: any.
/// Ownership: `name` is copied: 1 to 64 of A-Z a-z 0-9 - _ . and the first no dot.
/// Errors: -EINVAL for a bad name, for a folder that others may write to, or if there is no folder. -EBUSY
///     on a second call, and while a pool exists. Other errors of the system, such as -ENOSPC.
/// Cost: some system calls, on files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_publish(name: *const c_char) -> c_int {
    status(|| {
        if name.is_null() {
            return Err(CallError::NULL);
        }
        // SAFETY: the caller gives a text.
        let name = unsafe { text(name, "") };
        let published = uncancelled(|| publish(&name))?;
        // The only one of this process: publish() succeeds once.
        PUBLISHER.store(std::process::id(), Relaxed);
        PUBLICATION.store(Box::into_raw(Box::new(published)), Release);
        withdraw_at_exit();
        Ok(())
    })
}

/// Has the C library take the file back when the program ends, or unloads this library.
fn withdraw_at_exit() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Relaxed) {
        // SAFETY: the function takes nothing and gives nothing. Without memory for it the file stays.
        unsafe { libc::atexit(withdraw) };
    }
}

/// In a child of fork, which has a copy of it, the publication is not the child's to take back.
extern "C" fn withdraw() {
    status(|| {
        drop(taken_publication());
        Ok(())
    });
}

/// The publication, for the one call that takes it back.
fn taken_publication() -> Option<Box<Publication>> {
    let address = PUBLICATION.swap(null_mut(), AcqRel);
    // SAFETY: not NULL, pagepool_publish made it of a box, and the swap gave it to this call alone.
    (!address.is_null()).then(|| unsafe { Box::from_raw(address) })
}

/// Notes in the published file that the process runs now; where nothing is published, nothing. Of a process
/// that was killed, readers know the time of the last one. Pools that come and go are signs, too.
///
/// Thread: any.
/// Cost: a look at the clock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_sign_of_life() {
    sign_of_life();
}

/// Takes back what pagepool_publish did: the file is removed, and pools made from now on are not shown.
/// Pools stay as they are. exit(3), and so a return from main, does it too. _exit(2), abort(3) and a signal
/// do not: the file then says what the process held.
///
/// Thread: any.
/// Errors: -ENOENT if nothing is published, or another thread is taking it back; and in a child of fork(2),
///     because the file is its parent's.
/// Cost: three system calls.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_unpublish() -> c_int {
    status(|| {
        let published = taken_publication().ok_or(NOT_PUBLISHED)?;
        let of_parent = published.is_of_parent();
        uncancelled(|| drop(published));
        match of_parent {
            false => Ok(()),
            true => Err(CallError::fixed(
                libc::ENOENT,
                c"the process that forked this one published: it takes the file back",
            )),
        }
    })
}

const NOT_PUBLISHED: CallError =
    CallError::fixed(libc::ENOENT, c"nothing is published by this process: pagepool_publish comes first");

/// What the program entered, and the numbers of its counters, by the number that it was given. Numbers are
/// never used again, so a stale one is refused.
struct EnteredByC {
    entered: BTreeMap<c_int, (PublishedEntry, usize)>,
    next: c_int,
}

static ENTRIES: Mutex<EnteredByC> = Mutex::new(EnteredByC { entered: BTreeMap::new(), next: 1 });

/// The entries; in a child of fork none if another thread of the parent had the lock, which nobody frees.
fn entries() -> CallResult<MutexGuard<'static, EnteredByC>> {
    match ENTRIES.try_lock() {
        Ok(entries) => Ok(entries),
        Err(TryLockError::WouldBlock) if is_of_parent() => Err(NOT_PUBLISHED),
        Err(_) => Ok(ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Whether another process published than this one, its child.
fn is_of_parent() -> bool {
    PUBLISHER.load(Relaxed) != std::process::id()
}

/// Shows something beside the pools, such as a socket and how many buffers wait there. `pagepool show` and
/// `doctor` subtract those from what the program holds. It is shown until pagepool_entry_put, or until the
/// process ends. Returns the number of the entry, above 0.
///
/// Thread: any.
/// Ownership: the texts are copied.
/// Errors: -ENOENT if nothing is published. -EINVAL names the field that is NULL, too long or too many.
///     -ENOSPC if the file is full: it has room for 1024 pools and entries. -EINVAL, -ESTALE for a bad
///     handle of a pool. -ENOMEM.
/// Cost: allocates; a short lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_publish_entry(params: *const EntryParamsC) -> c_int {
    number(|| {
        oom::expect(oom::FEW)?;
        // SAFETY: the caller's struct begins with its size.
        let params = unsafe { sized::read(params, entry_params::LEAST) }?;
        if params.kind.is_null() {
            return Err(out_of_range("kind", "NULL", "a text"));
        }
        let pool = Token::of(params.pool);
        let parent = if params.pool.is_null() { 0 } else { slots::handle(pool)?.id().into() };
        // SAFETY: the caller gives texts, and as many names as it says.
        let texts = unsafe { params.texts() }?;
        if PUBLICATION.load(Acquire).is_null() {
            return Err(NOT_PUBLISHED);
        }
        let lines: Vec<(&str, &str)> = texts.params.iter().map(|(key, value)| (&**key, &**value)).collect();
        let names: Vec<&str> = texts.counters.iter().map(|name| &**name).collect();
        let entry = publish_entry(&texts.kind, params.id, parent, &texts.name, &lines, &names).ok_or(FULL)?;
        let mut entries = entries()?;
        let at = entries.next;
        entries.next = at.checked_add(1).ok_or(FULL)?;
        entries.entered.insert(at, (entry, names.len()));
        Ok(at)
    })
}

const FULL: CallError = CallError::fixed(
    libc::ENOSPC,
    c"the published file has no room: pagepool_entry_put removes an entry; in a child of fork(2) nothing is \
      published",
);

/// Sets a counter of an entry, by the index of its name.
///
/// Thread: any.
/// Errors: -EINVAL for an index or an entry that never existed. -ESTALE for an entry that was removed.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_entry_set(entry: c_int, counter: usize, value: u64) -> c_int {
    status(|| {
        let entries = entries()?;
        let (published, counters) = entries.entered.get(&entry).ok_or_else(|| entries.missing(entry))?;
        if counter >= *counters {
            return Err(out_of_range("counter", counter, &format!("below {counters}, the entry's names")));
        }
        published.set(counter, value);
        Ok(())
    })
}

/// Removes an entry from what is shown.
///
/// Thread: any.
/// Ownership: the number ends.
/// Errors: as for pagepool_entry_set.
/// Cost: a short lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_entry_put(entry: c_int) -> c_int {
    status(|| {
        let mut entries = entries()?;
        let removed = entries.entered.remove(&entry);
        removed.map(drop).ok_or_else(|| entries.missing(entry))
    })
}

impl EnteredByC {
    #[cold]
    fn missing(&self, entry: c_int) -> CallError {
        if (1..self.next).contains(&entry) {
            return CallError::fixed(libc::ESTALE, c"the entry was removed before");
        }
        out_of_range("entry", entry, "a number that pagepool_publish_entry returned")
    }
}
