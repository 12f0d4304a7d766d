//! Showing the pools of this process to others.

// UNSAFETY: functions with fixed names; a caller's text is read, and a box is kept as its address.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Release},
};

use ::pagepool::{Publication, publish, sign_of_life, uncancelled};

use crate::args::sized::text;
use crate::error::{CallError, status};

/// What this process published, in a box, until it takes it back. No lock: a child of fork would wait for one
/// for ever that a thread of its parent held, which the child does not have.
static PUBLICATION: AtomicPtr<Publication> = AtomicPtr::new(null_mut());

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
/// Errors: -EINVAL for the name, for a folder that others may write to, or for none. -EBUSY the second
///     time, and while a pool exists. Others of the system, such as -ENOSPC.
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
        PUBLICATION.store(Box::into_raw(Box::new(published)), Release);
        Ok(())
    })
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
/// Pools stay as they are. A program that ends should call it: else its file says that it was killed.
///
/// Thread: any.
/// Errors: -ENOENT if nothing is published, or another thread takes it back now; and in a child of fork(2),
///     for the file is its parent's.
/// Cost: three system calls.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_unpublish() -> c_int {
    status(|| {
        let address = PUBLICATION.swap(null_mut(), AcqRel);
        if address.is_null() {
            return Err(CallError::fixed(
                libc::ENOENT,
                c"nothing is published by this process: pagepool_publish comes first",
            ));
        }
        // SAFETY: pagepool_publish made it of a box, and the swap gave it to this call alone.
        let published = unsafe { Box::from_raw(address) };
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
