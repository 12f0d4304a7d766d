//! Calls that `pthread_cancel` does not interrupt.
//!
//! Why    a thread that is cancelled is unwound. Rust aborts the process where that reaches its frames. The
//!        core makes no call that is a cancellation point (`sys::call`); what is left are functions of the
//!        user's, which may do anything, and a few of Rust's library.
//! Who    any thread. A cancellation that comes meanwhile takes effect at the thread's next cancellation
//!        point after the call.
//! Cost   two short calls of the C library; no system call.

// UNSAFETY: a function of the C library.
#![expect(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Sets the state of the thread back when it is dropped.
struct CancelState(c_int);

impl CancelState {
    fn disable() -> Self {
        let mut old = 0;
        // SAFETY: the state is one of the two that there are; the old one is stored in our variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
        Self(old)
    }
}

impl Drop for CancelState {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: the state is the one that the C library gave.
        unsafe { pthread_setcancelstate(self.0, &raw mut old) };
    }
}

/// Calls a function without being cancelled in it (`pthread_cancel`): a cancellation takes effect at the
/// thread's next cancellation point after it. For interfaces to other languages, whose threads may be
/// cancelled, which Rust's functions do not survive.
#[inline]
pub fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let _state = CancelState::disable();
    call()
}
