//! A hook at the end of a thread, even if the thread first uses the library after its thread-local variables
//! are dropped.
//!
//! What   a thread that ends runs the destructors of its thread-local variables once, then those of its
//!        thread-specific data (`pthread_key_create`), in up to four rounds. A thread-local variable that is
//!        first used in these rounds is never dropped. So code that registers something with a thread also
//!        sets an [`EndHook`], a key whose destructor runs in the same or the next round.
//! Who    the thread itself sets, clears and runs its hook.
//! Cost   glibc keeps 32 bytes of each thread-local variable whose destructor was registered too late.
//! Limits a hook first set in the fourth round may not run: there is no fifth. Nor does it run if the
//!        process has no key left (1024 in glibc, 128 in musl).
//! Unload a set hook of an unloaded library would call unmapped code. The thread-local variable's destructor
//!        clears it, and the library stays loaded until that has run.

// UNSAFETY: thread-specific data are functions of the C library.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// In [`EndHook::key`]: no key yet.
const UNKNOWN: u64 = 0;
/// In [`EndHook::key`]: the process has no key left.
const NONE: u64 = 1;
/// In [`EndHook::key`]: values from here on are a key plus this.
const KEYS: u64 = 2;

/// A function that a thread calls when it ends, after the destructors of its thread-local variables. For
/// interfaces to languages whose threads may use the library that late.
///
/// ```
/// use pagepool::EndHook;
/// use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
///
/// static ENDED: AtomicU32 = AtomicU32::new(0);
/// static HOOK: EndHook = EndHook::new(|| _ = ENDED.fetch_add(1, SeqCst));
/// let threads = [true, false].map(|ends_with_it| {
///     std::thread::spawn(move || {
///         HOOK.set();
///         if !ends_with_it {
///             HOOK.clear();
///         }
///     })
/// });
/// threads.into_iter().for_each(|thread| thread.join().unwrap());
/// assert_eq!(ENDED.load(SeqCst), 1);
/// ```
#[derive(Debug)]
pub struct EndHook {
    /// Not a `OnceLock`: the thread sanitizer does not see the ordering of std's precompiled code.
    key: AtomicU64,
    run: fn(),
}

impl EndHook {
    /// A hook that calls `run` on the ending thread. `run` must not unwind.
    pub const fn new(run: fn()) -> Self {
        Self { key: AtomicU64::new(UNKNOWN), run }
    }

    /// Makes the calling thread run the hook when it ends, once.
    pub fn set(&'static self) {
        self.store(std::ptr::from_ref(self).cast());
    }

    /// Undoes [`set`](Self::set).
    pub fn clear(&'static self) {
        if self.key.load(Ordering::Acquire) != UNKNOWN {
            self.store(std::ptr::null());
        }
    }

    fn store(&'static self, value: *const c_void) {
        let known = match self.key.load(Ordering::Acquire) {
            UNKNOWN => self.make_key(),
            known => known,
        };
        if known >= KEYS {
            // SAFETY: the key exists. If there is no memory for the value, the thread ends without its hook.
            unsafe { libc::pthread_setspecific((known - KEYS) as libc::pthread_key_t, value) };
        }
    }

    /// Makes the key, unless another thread does; returns what `key` holds.
    #[cold]
    fn make_key(&self) -> u64 {
        let ours = new_key();
        let known = ours.map_or(NONE, |key| u64::from(key) + KEYS);
        match self.key.compare_exchange(UNKNOWN, known, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known,
            Err(theirs) => {
                if let Some(key) = ours {
                    // SAFETY: no value was set with it, and no other thread knows it.
                    unsafe { libc::pthread_key_delete(key) };
                }
                theirs
            }
        }
    }
}

/// The process keeps the key; `None` if it has none left.
fn new_key() -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: the C library writes one key. The function exists while values are set, see the header
    // (Unload).
    let done = unsafe { libc::pthread_key_create(&raw mut key, Some(run_hook)) };
    (done == 0).then_some(key)
}

/// The key's destructor, called with the value that was set.
unsafe extern "C" fn run_hook(hook: *mut c_void) {
    // SAFETY: only `set` stores a value that is not null, and it is the address of a static.
    let hook = unsafe { &*hook.cast::<EndHook>() };
    (hook.run)();
}
