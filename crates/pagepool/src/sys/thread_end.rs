//! A hook at the end of a thread, also of one that first uses the library when its thread-local variables are
//! gone already.
//!
//! What   a thread that ends first runs the destructors of its thread-local variables, once, and then those
//!        of its thread-specific data (`pthread_key_create`), in up to four rounds. A thread-local variable
//!        that is first used in the latter is never dropped. So who registers something with a thread sets an
//!        [`EndHook`] beside it, which is a key: its destructor runs in the same round or in the next one.
//! Who    the thread itself sets, clears and runs its hook.
//! Cost   glibc keeps 32 bytes of each thread-local variable whose destructor was registered too late.
//! Limits a hook that is first set in the fourth round may not run: the C library has no fifth one. Nor does
//!        it where the process has no key left (1024 in glibc, 128 in musl).
//! Unload a hook that is still set when its library is unloaded would be called where nothing is any more.
//!        The destructor of the thread-local variable clears it, and the library stays until that has run.

// UNSAFETY: thread-specific data are functions of the C library.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// In [`EndHook::key`]: nobody asked for a key.
const UNKNOWN: u64 = 0;
/// In [`EndHook::key`]: the process has no key left.
const NONE: u64 = 1;
/// In [`EndHook::key`]: from here on, a key and this.
const KEYS: u64 = 2;

/// What a thread calls when it ends, after the destructors of its thread-local variables. For interfaces to
/// other languages, whose threads may use the library as late as that.
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
    /// No `OnceLock`: the thread sanitizer does not see what std's own code orders.
    key: AtomicU64,
    run: fn(),
}

impl EndHook {
    /// A hook that calls this function on the thread that ends. It must not unwind.
    pub const fn new(run: fn()) -> Self {
        Self { key: AtomicU64::new(UNKNOWN), run }
    }

    /// Has the calling thread run the hook when it ends, once.
    pub fn set(&'static self) {
        self.store(std::ptr::from_ref(self).cast());
    }

    /// Takes [`set`](Self::set) back.
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
            // SAFETY: the key is there. Without memory for the value the thread ends without its hook.
            unsafe { libc::pthread_setspecific((known - KEYS) as libc::pthread_key_t, value) };
        }
    }

    /// Makes the key, unless another thread does; gives what is in `key` from now on.
    #[cold]
    fn make_key(&self) -> u64 {
        let ours = new_key();
        let known = ours.map_or(NONE, |key| u64::from(key) + KEYS);
        match self.key.compare_exchange(UNKNOWN, known, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known,
            Err(theirs) => {
                if let Some(key) = ours {
                    // SAFETY: no value was set with it, and nobody else knows it.
                    unsafe { libc::pthread_key_delete(key) };
                }
                theirs
            }
        }
    }
}

/// A key of the process, which it keeps; none if it has no more.
fn new_key() -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: the C library writes one key; the function is there as long as values are set, see above.
    let done = unsafe { libc::pthread_key_create(&raw mut key, Some(run_hook)) };
    (done == 0).then_some(key)
}

/// The destructor of the key, which the C library calls with what was set.
unsafe extern "C" fn run_hook(hook: *mut c_void) {
    // SAFETY: only `set` stores a value, and it is a static's address.
    let hook = unsafe { &*hook.cast::<EndHook>() };
    (hook.run)();
}
