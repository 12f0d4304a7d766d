//! Large tables that use memory only where they are touched.

// UNSAFETY: makes a slice of zeroed memory, for element types of which all-zero is a value.
#![expect(unsafe_code)]

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error::Error;
#[cfg(not(loom))]
use crate::sys::memory::{Mapped, PAGE_SIZE};

/// Types of which all-zero bytes are a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type.
pub(crate) unsafe trait Zeroable {}

// SAFETY: an atomic integer has the representation of the integer, and zero is one.
unsafe impl Zeroable for std::sync::atomic::AtomicU8 {}
// SAFETY: an atomic integer has the representation of the integer, and zero is one.
unsafe impl Zeroable for std::sync::atomic::AtomicU32 {}
// SAFETY: an atomic integer has the representation of the integer, and zero is one.
unsafe impl Zeroable for std::sync::atomic::AtomicU64 {}
// SAFETY: zero is an integer.
unsafe impl Zeroable for u8 {}
// SAFETY: zero is an integer.
unsafe impl Zeroable for u32 {}

/// A slice that begins as zeroes.
///
/// Its memory is allocated when touched: an area of millions of pages that hands out a thousand pays for a
/// thousand. `calloc` does not guarantee that: if it reuses freed memory it writes the zeroes itself (glibc:
/// up to 32 MiB). So a table of [`MAPPED`] bytes or more is its own mapping.
pub(crate) struct Table<T> {
    slice: NonNull<[T]>,
    /// Unless the memory is the allocator's.
    #[cfg(not(loom))]
    mapping: Option<Mapped>,
}

/// Bytes from which a table is its own mapping. Below, the pages that it does not share cost as much as the
/// zeroes.
#[cfg(not(loom))]
const MAPPED: usize = 16 << 10;

// SAFETY: it owns its elements, like a box.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: it owns its elements, like a box.
unsafe impl<T: Sync> Sync for Table<T> {}

#[cfg(not(loom))]
impl<T: Zeroable> Table<T> {
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= PAGE_SIZE) };
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes >= MAPPED);
        let Some(bytes) = bytes else { return Ok(Self::of(zeroed(len)?)) };
        let mapping = Mapped::zeroes(bytes).map_err(|_| no_memory("mmap", bytes))?;
        let slice = NonNull::slice_from_raw_parts(mapping.first().cast(), len);
        Ok(Self { slice, mapping: Some(mapping) })
    }
}

#[cfg(loom)]
impl<T: Default> Table<T> {
    /// Atomics of loom are not plain memory.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        Ok(Self::of((0..len).map(|_| T::default()).collect()))
    }
}

impl<T> Table<T> {
    fn of(elements: Box<[T]>) -> Self {
        Self {
            slice: NonNull::from(Box::leak(elements)),
            #[cfg(not(loom))]
            mapping: None,
        }
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: it owns the slice, whose elements are valid from the start.
        unsafe { self.slice.as_ref() }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: it owns the slice, whose elements are valid from the start; `self` is borrowed
        // exclusively.
        unsafe { self.slice.as_mut() }
    }
}

impl<T: Debug> Debug for Table<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        if self.mapping.is_some() {
            return; // mapped elements need no drop
        }
        // SAFETY: `of` leaked this box, and no borrow of the table exists.
        drop(unsafe { Box::from_raw(self.slice.as_ptr()) });
    }
}

fn no_memory(call: &'static str, bytes: usize) -> Error {
    let remedy = format!(
        "no memory for a table of {bytes} bytes: use smaller areas or fewer blocks, or raise RLIMIT_AS"
    );
    Error::System { call, remedy, source: io::Error::from_raw_os_error(libc::ENOMEM) }
}

pub(crate) fn zeroed<T: Zeroable>(len: usize) -> Result<Box<[T]>, Error> {
    let too_big = || Error::parameter("max_bytes", len, "an area whose tables fit the address space");
    let layout = std::alloc::Layout::array::<T>(len).map_err(|_| too_big())?;
    if layout.size() == 0 {
        return Ok(Box::new([]));
    }
    // SAFETY: the layout has a size above zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        return Err(no_memory("calloc", layout.size()));
    }
    let slice = std::ptr::slice_from_raw_parts_mut(memory, len);
    // SAFETY: the global allocator gave it with the slice's layout, and zeroes are values of `T`.
    Ok(unsafe { Box::from_raw(slice) })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_zeroes_and_keeps_what_is_written() {
        for len in [0, 1, MAPPED - 1, MAPPED, 100 << 20] {
            let mut table = Table::<u8>::new(len).expect("it is small");
            assert_eq!((table.len(), table.mapping.is_some()), (len, len >= MAPPED));
            assert!(
                table.first().is_none_or(|&byte| byte == 0) && table.last().is_none_or(|&byte| byte == 0)
            );
            if let Some(last) = table.last_mut() {
                *last = 7;
            }
            assert_eq!(table.last().copied().unwrap_or(7), 7);
        }
    }

    #[test]
    fn more_than_there_is_is_refused() {
        for len in [usize::MAX / 16, usize::MAX / 8 + 1] {
            assert!(Table::<std::sync::atomic::AtomicU64>::new(len).is_err(), "{len}");
        }
    }
}
