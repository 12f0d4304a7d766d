//! Errors of calls: a negative errno, and a text that the thread can read.
//!
//! Who    any thread; each has its own text, which stays until the next error on that thread.
//! Cost   an error with a fixed text stores two words. Texts with values are formatted, on cold paths only.

// UNSAFETY: exported functions.
#![expect(unsafe_code)]

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::TryReserveError;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::pagepool::EndHook;

use crate::c_words;

/// The error of a call.
#[derive(Debug)]
pub(crate) struct CallError {
    errno: c_int,
    text: Cow<'static, CStr>,
}

/// The result of a call inside this crate.
pub(crate) type CallResult<T> = Result<T, CallError>;

impl CallError {
    /// An error with a fixed text.
    #[cold]
    pub(crate) const fn fixed(errno: c_int, text: &'static CStr) -> Self {
        Self { errno, text: Cow::Borrowed(text) }
    }

    /// An error whose text has values.
    #[cold]
    pub(crate) fn formatted(errno: c_int, text: String) -> Self {
        let text = CString::new(text.replace('\0', ""));
        Self { errno, text: text.map_or(Cow::Borrowed(c"an error without text"), Cow::Owned) }
    }

    /// A NULL, or a value that never was a handle of this kind.
    pub(crate) const NO_HANDLE: Self =
        Self::fixed(libc::EINVAL, c"bad handle: NULL, of another kind, or not from this library");

    /// A handle that was released.
    pub(crate) const STALE: Self = Self::fixed(
        libc::ESTALE,
        c"stale handle: it was released, and its object no longer belongs to the caller",
    );

    /// An argument that must not be NULL.
    pub(crate) const NULL: Self = Self::fixed(libc::EINVAL, c"an argument that must not be NULL is NULL");

    /// An access to bytes of device memory.
    pub(crate) const UNREADABLE: Self = Self::fixed(
        libc::EOPNOTSUPP,
        c"the CPU cannot read this memory: device memory has only page numbers and device addresses",
    );

    /// A call that only the owner's thread may make.
    pub(crate) const NOT_OWNER: Self = Self::fixed(
        libc::EPERM,
        c"the pool is not bound to this thread: only its owner may make this call (pagepool_bind)",
    );

    /// The system has no memory for a table.
    pub(crate) const NO_MEMORY: Self =
        Self::fixed(libc::ENOMEM, c"no memory for the library's tables: raise the process's memory limit");

    /// A panic, or a case that cannot happen.
    pub(crate) const INTERNAL: Self = Self::fixed(libc::EIO, c"an error inside pagepool: please report it");

    /// Keeps the text for this thread; returns the negative errno.
    #[cold]
    pub(crate) fn report(self) -> c_int {
        let errno = self.errno;
        LAST_ERRNO.set(errno);
        // It fails only at the end of the thread, when no call can read the text any more.
        let _ = LAST.try_with(|last| last.keep(self.text));
        -errno
    }
}

impl From<TryReserveError> for CallError {
    fn from(_: TryReserveError) -> Self {
        Self::NO_MEMORY
    }
}

impl From<::pagepool::Error> for CallError {
    fn from(error: ::pagepool::Error) -> Self {
        Self::formatted(error.errno(), c_words::of_error(error))
    }
}

impl From<::pagepool::RawError> for CallError {
    fn from(error: ::pagepool::RawError) -> Self {
        let errno =
            if matches!(error, ::pagepool::RawError::NotOut(_)) { libc::ESTALE } else { libc::EINVAL };
        Self::formatted(errno, c_words::in_c(error.to_string()))
    }
}

impl From<::pagepool::SplitError> for CallError {
    fn from(error: ::pagepool::SplitError) -> Self {
        Self::formatted(libc::EINVAL, c_words::in_c(error.to_string()))
    }
}

impl From<pagepool_skb::SkbError> for CallError {
    fn from(error: pagepool_skb::SkbError) -> Self {
        use pagepool_skb::SkbError::*;
        let errno = match error {
            Exhausted => libc::ENOBUFS,
            NoMemory => libc::ENOMEM,
            Cloned => libc::EBUSY,
            NoRoom => libc::ENOSPC,
            TooShort => libc::EINVAL,
            Unreadable => libc::EOPNOTSUPP,
            _ => libc::EIO,
        };
        Self::formatted(errno, c_words::in_c(error.to_string()))
    }
}

struct LastError(RefCell<Cow<'static, CStr>>);

thread_local! {
    /// Has no destructor, so it is usable until the thread is gone.
    static LAST_ERRNO: Cell<c_int> = const { Cell::new(0) };
    static LAST: LastError = const { LastError(RefCell::new(Cow::Borrowed(c""))) };
}

/// For a thread whose first error comes too late for the destructor of `LAST`.
static END_HOOK: EndHook = EndHook::new(|| {
    let _ = LAST.try_with(|last| last.keep(Cow::Borrowed(c"")));
});

impl LastError {
    fn keep(&self, text: Cow<'static, CStr>) {
        if let Cow::Owned(_) = text {
            END_HOOK.set();
        }
        let _ = self.0.try_borrow_mut().map(|mut last| *last = text);
    }
}

impl Drop for LastError {
    fn drop(&mut self) {
        END_HOOK.clear();
    }
}

/// Runs a call that returns a status: 0, or a negative errno. The result of the call is dropped.
pub(crate) fn status<T>(call: impl FnOnce() -> CallResult<T>) -> c_int {
    run(|| call().map(drop)).map_or_else(|errno| errno, |()| 0)
}

/// Runs a call that returns a number, or a negative errno.
pub(crate) fn number<T: From<c_int>>(call: impl FnOnce() -> CallResult<T>) -> T {
    run(call).unwrap_or_else(T::from)
}

/// Runs a call that returns `otherwise` if it fails.
pub(crate) fn value_or<T>(otherwise: T, call: impl FnOnce() -> CallResult<T>) -> T {
    run(call).unwrap_or(otherwise)
}

/// Runs a call, and reports its error. A panic, which would be a bug of this library, ends here if panics
/// unwind.
fn run<T>(call: impl FnOnce() -> CallResult<T>) -> Result<T, c_int> {
    let done = catch_unwind(AssertUnwindSafe(call));
    done.unwrap_or(Err(CallError::INTERNAL)).map_err(CallError::report)
}

/// Returns a sentence that explains the last error on this thread, or "" if there was none. It names the
/// parameter, its value and its range, or the system call and the remedy.
///
/// Thread: any; each has its own sentence.
/// Ownership: the text is the library's. It is valid until the next call on this thread that fails.
/// Errors: none.
/// Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_last_error() -> *const c_char {
    let text = |last: &LastError| last.0.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr());
    LAST.try_with(text).unwrap_or(c"".as_ptr())
}

/// Returns the errno of the last error on this thread, as a positive number, also of a function that returned
/// NULL, 0 or a largest value. 0 if there was none since the thread began or pagepool_clear_error. A call
/// that succeeds does not change it.
///
/// Thread: any; each has its own.
/// Errors: none.
/// Cost: a load.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_last_errno() -> c_int {
    LAST_ERRNO.get()
}

/// Clears the last error on this thread. Call it before a function whose result may be 0 without an error,
/// such as pagepool_skb_len, to check pagepool_last_errno after it.
///
/// Thread: any.
/// Errors: none.
/// Cost: two stores.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_clear_error() {
    LAST_ERRNO.set(0);
    let _ = LAST.try_with(|last| last.keep(Cow::Borrowed(c"")));
}
