//! Structs that may grow: each begins with its size, as the caller was compiled. The library reads and writes
//! no more than that.

// UNSAFETY: reads and writes a C caller's struct by its address.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char};

use crate::args::range::out_of_range;
use crate::error::{CallError, CallResult};

/// Structs of the header that begin with `size`, and of which all-zero bytes are a value.
///
/// # Safety
/// * The struct is `repr(C)` and begins with `size: usize`.
/// * All-zero bytes are a value of it, and so is every mixture of such bytes with a caller's.
pub(crate) unsafe trait Sized0: Copy {
    /// The size of the struct's first version: bytes that every caller has.
    const LEAST: usize;
}

/// A newer program's struct may be at most this many times as long as the library's. A larger size was never
/// set, and the library must not write that far.
const LONGEST: usize = 4;

/// The longest size that is accepted for a `T`.
const fn longest<T>() -> usize {
    LONGEST * size_of::<T>()
}

/// A copy of a caller's struct. Fields that an older caller does not have are zero. Fields that only a newer
/// caller has must be zero.
///
/// # Safety
/// `at` is NULL, or readable for as many bytes as its first word says.
pub(crate) unsafe fn read<T: Sized0>(at: *const T) -> CallResult<T> {
    if at.is_null() {
        return Err(CallError::NULL);
    }
    // SAFETY: the caller's struct begins with its size, at any alignment.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    if size < T::LEAST || size > longest::<T>() {
        return Err(wrong_size::<T>(size));
    }
    // SAFETY: the caller guarantees that `size` bytes are readable.
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
    // SAFETY: a mixture of zeroes and a caller's bytes is a value of `T`.
    Ok(unsafe { value.assume_init() })
}

/// A struct of zeroes: each parameter is the default.
pub(crate) fn zeroes<T: Sized0>() -> T {
    // SAFETY: all-zero bytes are a value of `T`.
    unsafe { std::mem::MaybeUninit::zeroed().assume_init() }
}

/// Structs of results that begin with `size`, which the caller sets.
///
/// # Safety
/// The struct is `repr(C)`, begins with `size: usize`, and has no padding.
pub(crate) unsafe trait SizedOut: Copy {
    /// Bytes that every caller has. Never changes once a version was released.
    const LEAST: usize;
}

/// Writes a caller's struct of results, up to the size at its beginning: the fields that both know, and
/// zeroes after them. `size` itself is unchanged. So an older program gets fewer fields, and nothing after
/// its struct changes.
///
/// # Safety
/// `to` is NULL, or writable for as many bytes as its first word says.
pub(crate) unsafe fn write<T: SizedOut>(to: *mut T, value: &T) -> CallResult<()> {
    if to.is_null() {
        return Err(CallError::NULL);
    }
    // SAFETY: the caller's struct begins with its size, at any alignment.
    let size = unsafe { to.cast::<usize>().read_unaligned() };
    // Every version's size is a multiple of the struct's alignment. A struct that was never initialised has 0
    // or an impossible size.
    if size < T::LEAST || size > longest::<T>() || !size.is_multiple_of(align_of::<T>()) {
        return Err(wrong_out_size::<T>(size));
    }
    let (first, known) = (size_of::<usize>(), size.min(size_of::<T>()));
    let (from, to) = (std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>());
    // SAFETY: the caller has `size` bytes, `known` is at most `size`, and the value is ours.
    unsafe {
        std::ptr::copy_nonoverlapping(from.wrapping_add(first), to.wrapping_add(first), known - first);
    }
    // SAFETY: `known` is at most `size`, and the caller has `size` bytes.
    unsafe { to.wrapping_add(known).write_bytes(0, size - known) };
    Ok(())
}

#[cold]
fn wrong_out_size<T: SizedOut>(size: usize) -> CallError {
    let (now, least, longest) = (size_of::<T>(), T::LEAST, longest::<T>());
    let must_be = format!(
        "{least} to {longest}: set `size` to sizeof of the struct, {now} in this version, as its _INIT does"
    );
    out_of_range("size", size, &must_be)
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
    // SAFETY: the caller guarantees a zero byte at the end.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Counts {
        size: usize,
        first: u64,
        added: u64,
    }

    // SAFETY: `repr(C)`, three words, of which the first is the size.
    unsafe impl SizedOut for Counts {
        const LEAST: usize = 16;
    }

    const NOW: Counts = Counts { size: 24, first: 1, added: 2 };

    /// Writes a struct of `size` bytes into five words of ones.
    fn written(size: usize) -> (CallResult<()>, [u64; 5]) {
        let mut words = [u64::MAX; 5];
        words[0] = size as u64;
        // SAFETY: there are 40 bytes, and no test writes more.
        let done = unsafe { write(words.as_mut_ptr().cast::<Counts>(), &NOW) };
        (done, words)
    }

    #[test]
    fn an_older_caller_keeps_what_lies_behind_its_struct() {
        let (done, words) = written(16);
        assert!(done.is_ok());
        assert_eq!(words, [16, 1, u64::MAX, u64::MAX, u64::MAX]);
    }

    #[test]
    fn a_newer_caller_gets_zeroes() {
        let (done, words) = written(32);
        assert!(done.is_ok());
        assert_eq!(words, [32, 1, 2, 0, u64::MAX]);
    }

    #[test]
    fn a_size_that_no_struct_has_changes_nothing() {
        for size in [0, 8, 15, 17, 104, 1 << 16, usize::MAX] {
            let (done, words) = written(size);
            let text = format!("{:?}", done.unwrap_err());
            assert!(text.contains(&format!("size is {size}, but must be 16 to 96")), "{text}");
            assert_eq!(words[1..], [u64::MAX; 4]);
        }
    }
}
