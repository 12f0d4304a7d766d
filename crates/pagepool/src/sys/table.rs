//! Large tables that cost memory only where they are touched.

// UNSAFETY: a slice is made from zeroed memory, for element types of which all-zero is a value.
#![expect(unsafe_code)]

use crate::error::Error;

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

/// A slice of `len` zeroes. The system gives the memory when it is touched, so an area of millions of pages
/// that hands out a thousand pays for a thousand.
#[cfg(not(loom))]
pub(crate) fn zeroed<T: Zeroable>(len: usize) -> Result<Box<[T]>, Error> {
    let too_big = || Error::parameter("max_bytes", len, "an area whose tables fit the address space");
    let layout = std::alloc::Layout::array::<T>(len).map_err(|_| too_big())?;
    if layout.size() == 0 {
        return Ok(Box::new([]));
    }
    // SAFETY: the layout has a size above zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        let size = layout.size();
        let remedy = format!("no {size} bytes of address space for the page tables: use a smaller arena");
        return Err(Error::no_memory("calloc", remedy));
    }
    let slice = std::ptr::slice_from_raw_parts_mut(memory, len);
    // SAFETY: the memory came from the global allocator with the slice's layout, and zeroes are values of
    // `T`.
    Ok(unsafe { Box::from_raw(slice) })
}

/// The same under loom, whose atomics are not plain memory.
#[cfg(loom)]
pub(crate) fn zeroed<T: Default>(len: usize) -> Result<Box<[T]>, Error> {
    Ok((0..len).map(|_| T::default()).collect())
}
