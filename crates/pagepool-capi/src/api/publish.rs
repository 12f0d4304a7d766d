//! Publishing pools and related entries to other processes.

// UNSAFETY: exported functions; reads a caller's text, and keeps a box as its address.
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

use crate::args::entry_params::EntryParamsC;
use crate::args::range::out_of_range;
use crate::args::sized::{self, text};
use crate::error::{CallError, CallResult, number, status};
use crate::handles::slots;
use crate::handles::token::Token;
use crate::oom;

/// The boxed publication, until it is withdrawn. Not behind a lock: a child of fork would wait forever for a
/// lock that another thread of its parent held.
static PUBLICATION: AtomicPtr<Publication> = AtomicPtr::new(null_mut());
/// The id of the process that published.
static PUBLISHER: AtomicU32 = AtomicU32::new(0);

/// Publishes the pools of this process to other processes of the same user: counters, places of pages,
/// parameters. Call it once, before the first pool; an arena that was created earlier is not shown. The file
/// is in the folder `$PAGEPOOL_RUN`, otherwise /run/pagepool for root, otherwise `$XDG_RUNTIME_DIR/pagepool`.
/// If the process is killed, the file stays and shows what the process held. A buffer costs at most one
/// instruction more. A child of fork(2) publishes nothing.
///
/// The folder should be on tmpfs. On another file system, the first store to a page after its write-back
/// takes a page fault, and if fallocate(2) reserves nothing there, a full file system kills the process by
/// SIGBUS.
///
/// Thread: any.
/// Ownership: `name` is copied. It has 1 to 64 characters of A-Z a-z 0-9 - _ . and does not begin with a dot.
/// Errors: -EINVAL for a bad name, for a folder that others may write to, or if there is no folder. -EBUSY
///     on a second call, and while a pool exists. Other errors of the system, such as -ENOSPC.
/// Cost: some system calls, on files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_publish(name: *const c_char) -> c_int {
    status(|| {
        if name.is_null() {
            return Err(CallError::NULL);
        }
        // SAFETY: `name` is not NULL, and the caller guarantees a zero byte at its end.
        let name = unsafe { text(name, "") };
        let published = uncancelled(|| publish(&name))?;
        // The only publication of this process: publish() succeeds once.
        PUBLISHER.store(std::process::id(), Relaxed);
        PUBLICATION.store(Box::into_raw(Box::new(published)), Release);
        withdraw_at_exit();
        Ok(())
    })
}

/// Registers [`withdraw`] to run when the program exits, or unloads this library.
fn withdraw_at_exit() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Relaxed) {
        // SAFETY: the function takes and returns nothing. If atexit has no memory for it, the file stays.
        unsafe { libc::atexit(withdraw) };
    }
}

/// Withdraws the publication at exit. In a child of fork this drops the child's copy, and the file stays.
extern "C" fn withdraw() {
    status(|| {
        drop(taken_publication());
        Ok(())
    });
}

/// Takes the publication out; only one call gets it.
fn taken_publication() -> Option<Box<Publication>> {
    let address = PUBLICATION.swap(null_mut(), AcqRel);
    // SAFETY: not NULL, so pagepool_publish made it from a box, and the swap gave it to this call alone.
    (!address.is_null()).then(|| unsafe { Box::from_raw(address) })
}

/// Records in the published file that the process is alive now. Without a published file it does nothing.
/// Readers of the file of a killed process see the time of its last sign of life. Creating or destroying a
/// pool is a sign of life too.
///
/// Thread: any.
/// Cost: reads the clock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_sign_of_life() {
    sign_of_life();
}

/// Withdraws what pagepool_publish published: removes the file; pools created from now on are not shown.
/// Existing pools are unchanged. exit(3) and a return from main do this too. _exit(2), abort(3) and a signal
/// do not: the file then shows what the process held.
///
/// Thread: any.
/// Errors: -ENOENT if nothing is published, or another thread is withdrawing it. -ENOENT in a child of
///     fork(2), because the file is its parent's.
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
                c"the process that forked this one published, and only that one can remove the file",
            )),
        }
    })
}

const NOT_PUBLISHED: CallError =
    CallError::fixed(libc::ENOENT, c"this process has published nothing: call pagepool_publish first");

/// The entries of the program, each with the number of its counters, by entry number. Numbers are never
/// reused, so a stale one is refused.
struct EnteredByC {
    entered: BTreeMap<c_int, (PublishedEntry, usize)>,
    next: c_int,
}

static ENTRIES: Mutex<EnteredByC> = Mutex::new(EnteredByC { entered: BTreeMap::new(), next: 1 });

/// Locks the entries. In a child of fork it fails if another thread of the parent held the lock at the fork:
/// no thread would release it.
fn entries() -> CallResult<MutexGuard<'static, EnteredByC>> {
    match ENTRIES.try_lock() {
        Ok(entries) => Ok(entries),
        Err(TryLockError::WouldBlock) if is_of_parent() => Err(NOT_PUBLISHED),
        Err(_) => Ok(ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Whether another process published, so that this one is its child.
fn is_of_parent() -> bool {
    PUBLISHER.load(Relaxed) != std::process::id()
}

/// Publishes an entry beside the pools, such as a socket with the number of buffers that wait there.
/// `pagepool show` and `doctor` subtract those from what the program holds. The entry is shown until
/// pagepool_entry_put, or until the process ends. Returns the number of the entry, above 0.
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
        let params = unsafe { sized::read(params) }?;
        if params.kind.is_null() {
            return Err(out_of_range("kind", "NULL", "a text"));
        }
        let pool = Token::of(params.pool);
        let parent = if params.pool.is_null() { 0 } else { slots::handle(pool)?.id().into() };
        // SAFETY: the caller guarantees that texts end with a zero byte, and that arrays have the stated
        // lengths.
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
    c"the published file is full: remove an entry with pagepool_entry_put; a child of fork(2) publishes \
      nothing",
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
            return Err(out_of_range(
                "counter",
                counter,
                &format!("below {counters}, the number of the entry's counters"),
            ));
        }
        published.set(counter, value);
        Ok(())
    })
}

/// Removes a published entry.
///
/// Thread: any.
/// Ownership: the number of the entry ends.
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
            return CallError::fixed(libc::ESTALE, c"the entry was already removed");
        }
        out_of_range("entry", entry, "a number that pagepool_publish_entry returned")
    }
}
