//! Calls that `pthread_cancel` does not interrupt.
//!
//! Why    cancelling unwinds a thread, and Rust aborts the process when that reaches its frames. The core
//!        calls no cancellation point (`sys::call`), but user functions and parts of Rust's library may.
//! Who    any thread. A cancellation takes effect at the thread's next cancellation point after the call.
//! Cost   two short calls of the C library; no system call.

// UNSAFETY: a function of the C library.
#![expect(unsafe_code)]

use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Restores the state when dropped.
struct CancelState(c_int);

impl Drop for CancelState {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: the C library returned this state.
        unsafe { pthread_setcancelstate(self.0, &raw mut old) };
    }
}

/// Calls a function with `pthread_cancel` disabled: a cancellation takes effect at the thread's next
/// cancellation point after it. For interfaces to languages whose threads may be cancelled: Rust's functions
/// do not survive that.
#[inline]
pub fn uncancelled<R>(call: impl FnOnce() -> R) -> R {
    let mut old = CancelState(0);
    // SAFETY: the state is one of the two that exist; the old one is stored in our variable.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old.0) };
    call()
}
