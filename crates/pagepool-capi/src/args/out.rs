//! Result pointers and arrays of C's callers.

// UNSAFETY: reads and writes callers' pointers and arrays.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use crate::error::{CallError, CallResult, number, status};
use crate::handles::token::Token;

/// Runs a call that stores its result in `*to`. Refuses NULL before the call.
///
/// # Safety
/// `to` is NULL or writable.
pub(crate) unsafe fn store<T>(to: *mut T, make: impl FnOnce() -> CallResult<T>) -> c_int {
    status(|| {
        if to.is_null() {
            return Err(CallError::NULL);
        }
        let made = make()?;
        // SAFETY: `to` is not NULL, so the caller's contract makes it writable.
        unsafe { to.write(made) };
        Ok(())
    })
}

/// Runs a call that stores its token as a handle in `*to`. Refuses NULL before the call.
///
/// # Safety
/// `to` is NULL or writable.
pub(crate) unsafe fn store_handle<T>(to: *mut *mut T, make: impl FnOnce() -> CallResult<Token>) -> c_int {
    // SAFETY: the caller's contract is that of `store`.
    unsafe { store(to, || Ok(make()?.handle())) }
}

/// Runs a call that writes a text into `len` bytes, cut to fit and ended with a zero byte, as `snprintf`
/// does. Returns the number that the call gives with the text.
///
/// # Safety
/// `to` is NULL or writable for `len` bytes.
pub(crate) unsafe fn store_text(
    to: *mut c_char,
    len: usize,
    make: impl FnOnce() -> CallResult<(String, usize)>,
) -> i64 {
    number(|| {
        let (text, number) = make()?;
        if !to.is_null() && len > 0 {
            let n = text.len().min(len - 1);
            // SAFETY: `to` is writable for `len` bytes, `n` is less than `len`, and the text is ours.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), n) };
            // SAFETY: `n` is less than `len`.
            unsafe { to.wrapping_add(n).write(0) };
        }
        Ok(number as i64)
    })
}

/// A caller's array, for reading.
///
/// # Safety
/// `at` is NULL or readable for `n` elements.
pub(crate) unsafe fn array<'a, T>(at: *const T, n: usize) -> CallResult<&'a [T]> {
    check(at, n)?;
    // SAFETY: `check` refused NULL and lengths that no array has; the rest is the caller's contract.
    Ok(if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, n) } })
}

/// A caller's array, for writing.
///
/// # Safety
/// `at` is NULL or writable for `n` elements.
pub(crate) unsafe fn array_mut<'a, T>(at: *mut T, n: usize) -> CallResult<&'a mut [MaybeUninit<T>]> {
    check(at, n)?;
    // SAFETY: `check` refused NULL and lengths that no array has; the rest is the caller's contract.
    Ok(if n == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at.cast(), n) } })
}

fn check<T>(at: *const T, n: usize) -> CallResult<()> {
    let fits = n == 0 || !at.is_null() && n <= isize::MAX as usize / size_of::<T>();
    if fits { Ok(()) } else { Err(CallError::NULL) }
}
