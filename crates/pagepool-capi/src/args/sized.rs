//! Reading structs that may grow: each begins with its size, as its user was compiled with it.

// UNSAFETY: a C caller's struct is read by its address.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char};

use crate::args::range::out_of_range;
use crate::error::{CallError, CallResult};

/// Structs of the header that begin with `size`, and of which all-zero bytes are a value.
///
/// # Safety
/// * The struct is `repr(C)` and begins with `size: usize`.
/// * All-zero bytes are a value of it, and so is every mixture of such bytes with a user's.
pub(crate) unsafe trait Sized0: Copy {}

/// No struct is larger; a size beyond it is a mistake.
const MAX_SIZE: usize = 1 << 16;

/// A copy of a caller's struct. Fields that an older caller does not have are zero; fields that a newer
/// caller has in addition must be zero.
///
/// # Safety
/// `at` is NULL, or readable for as many bytes as its first word says.
pub(crate) unsafe fn read<T: Sized0>(at: *const T, least: usize) -> CallResult<T> {
    if at.is_null() {
        return Err(CallError::NULL);
    }
    // SAFETY: the caller's struct begins with its size, at any alignment.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    if size < least || size > MAX_SIZE {
        return Err(wrong_size::<T>(size));
    }
    // SAFETY: the caller says that `size` bytes are readable.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
    if bytes.iter().skip(size_of::<T>()).any(|&byte| byte != 0) {
        return Err(CallError::fixed(
            libc::E2BIG,
            c"a field is set that this version of the library does not have: set it to 0",
        ));
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let known = bytes.len().min(size_of::<T>());
    // SAFETY: both are valid for `known` bytes, and `value` is ours alone.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), known) };
    // SAFETY: zeroes and a user's bytes are a value of `T`.
    Ok(unsafe { value.assume_init() })
}

/// Writes a struct of which the caller has `size` bytes, compiled with an older or newer header: the fields
/// that both know, and zeroes behind them.
///
/// # Safety
/// `to` is NULL, or writable for `size` bytes.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, size: usize, value: &T) -> CallResult<()> {
    if to.is_null() {
        return Err(CallError::NULL);
    }
    // Every version of a struct is whole multiples of its alignment, and none is empty. So a forgotten or a
    // made-up size is an error, and not a struct that stays as it was.
    if size == 0 || size > MAX_SIZE || !size.is_multiple_of(align_of::<T>()) {
        return Err(wrong_size::<T>(size));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller has `size` bytes, and the value is ours.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast(), known) };
    let rest = to.cast::<u8>().wrapping_add(known);
    // SAFETY: `known` is at most `size`, and the caller has `size` bytes.
    unsafe { rest.write_bytes(0, size - known) };
    Ok(())
}

fn wrong_size<T>(size: usize) -> CallError {
    out_of_range("size", size, &format!("that of the struct, {}", size_of::<T>()))
}

/// A caller's text, or `otherwise` for NULL.
///
/// # Safety
/// `text` is NULL or ends with a zero byte.
pub(crate) unsafe fn text(text: *const c_char, otherwise: &str) -> String {
    if text.is_null() {
        return otherwise.into();
    }
    // SAFETY: the caller says that it ends with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
