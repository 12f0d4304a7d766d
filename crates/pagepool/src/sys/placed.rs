//! Values in published memory, which other processes may read; on the heap if this process does not publish.
//!
//! What   [`Placed`] is a box; [`Shared`] an `Arc` that reaches its value with one load.
//! Why    a pool, its lanes and its deferred queue's counters are placed, so observers see them without a
//!        copy, also after the process was killed.
//! Heap   glibc's memalign cuts a block out of a larger one and leaves unusable gaps. So a block has room to
//!        align its value; its start is kept, by which alone leak checkers find it.
//! Cost   reaching a value is one load anywhere.

// UNSAFETY: makes, reads and drops values by address.
#![expect(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::sys::published_layout::BlockAt;
use crate::sys::published_memory::PublishedMemory;

pub(crate) struct Placed<T: ?Sized> {
    value: NonNull<T>,
    /// The block's start: the value's address in published memory, at or before it on the heap.
    start: NonNull<u8>,
}

// SAFETY: it owns its value, like a box.
unsafe impl<T: Send + ?Sized> Send for Placed<T> {}
// SAFETY: it owns its value, like a box.
unsafe impl<T: Sync + ?Sized> Sync for Placed<T> {}

impl<T> Placed<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Self {
        let (start, at) = take_block(Layout::new::<T>(), 1);
        let at = at.cast::<T>();
        // SAFETY: the place is as large as the value, and no other code uses it.
        unsafe { at.write(value) };
        Self { value: at, start }
    }
}

impl<T> Placed<[T]> {
    pub(crate) fn all(values: impl ExactSizeIterator<Item = T>) -> Self {
        Self::all_of(values, 1)
    }

    /// For values that observers can do without: leaves most of the published memory free.
    pub(crate) fn all_sparingly(values: impl ExactSizeIterator<Item = T>) -> Self {
        Self::all_of(values, 4)
    }

    fn all_of(mut values: impl ExactSizeIterator<Item = T>, part: usize) -> Self {
        let len = values.len();
        let layout = Layout::array::<T>(len).expect("a few values fit the address space");
        if layout.size() == 0 {
            let value = NonNull::slice_from_raw_parts(NonNull::dangling(), len);
            return Self { value, start: NonNull::dangling() };
        }
        let (start, first) = take_block(layout, part);
        let first = first.cast::<T>();
        for at in 0..len {
            let value = values.next().expect("an iterator has as many values as it says");
            // SAFETY: the place has room for `len` values.
            let at = unsafe { first.add(at) };
            // SAFETY: the place has room for `len` values, and no other code uses it.
            unsafe { at.write(value) };
        }
        Self { value: NonNull::slice_from_raw_parts(first, len), start }
    }
}

impl<T: ?Sized> Deref for Placed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it owns the value, written when this was made.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> Drop for Placed<T> {
    fn drop(&mut self) {
        let _back = PlaceBack(self.start, Layout::for_value(&**self)); // also if the value's drop panics
        // SAFETY: it owns the value, and is dropped once.
        unsafe { ptr::drop_in_place(self.value.as_ptr()) };
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The start of a block for this layout, and the value's address. In published memory if it takes at most
/// `1 / part` of the unused end there.
fn take_block(layout: Layout, part: usize) -> (NonNull<u8>, NonNull<u8>) {
    let published = PublishedMemory::current().and_then(|memory| memory.take(layout, part));
    if let Some(at) = published {
        return (at, at);
    }
    let on_heap = on_heap(layout);
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { alloc(on_heap) }).unwrap_or_else(|| handle_alloc_error(on_heap));
    // SAFETY: the block is longer than the value by what the alignment may need.
    let at = unsafe { start.add(start.as_ptr().align_offset(layout.align())) };
    (start, at)
}

/// A block with room to align the value.
fn on_heap(layout: Layout) -> Layout {
    let room = layout.align().saturating_sub(HEAP_ALIGN);
    Layout::from_size_align(layout.size() + room, layout.align().min(HEAP_ALIGN)).expect("a few values fit")
}

/// `malloc`'s alignment.
const HEAP_ALIGN: usize = 16;

/// Frees a place.
struct PlaceBack(NonNull<u8>, Layout);

impl Drop for PlaceBack {
    fn drop(&mut self) {
        let Self(start, layout) = *self;
        if layout.size() == 0 {
            return;
        }
        let published = PublishedMemory::current().is_some_and(|memory| memory.give_back(start, layout));
        if !published {
            // SAFETY: what is not in published memory came from the allocator, with this layout.
            unsafe { dealloc(start.as_ptr(), on_heap(layout)) };
        }
    }
}

pub(crate) struct Shared<T: ?Sized> {
    at: NonNull<T>,
    keep: Arc<Placed<T>>,
}

// SAFETY: the `Arc` in it requires these bounds and no more.
unsafe impl<T: Send + Sync + ?Sized> Send for Shared<T> {}
// SAFETY: the `Arc` in it requires these bounds and no more.
unsafe impl<T: Send + Sync + ?Sized> Sync for Shared<T> {}

impl<T: ?Sized> Shared<T> {
    pub(crate) fn keep(this: &Self) -> &Arc<Placed<T>> {
        &this.keep
    }

    /// The value's place in the published file, if in there, as `count` parts.
    pub(crate) fn block(this: &Self, count: usize) -> Option<BlockAt> {
        block_of(&**this, count)
    }
}

impl<T: ?Sized> From<Arc<Placed<T>>> for Shared<T> {
    fn from(keep: Arc<Placed<T>>) -> Self {
        Self { at: keep.value, keep }
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Arc::new(Placed::new(value)).into()
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, keep: self.keep.clone() }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `keep` keeps the value alive.
        unsafe { self.at.as_ref() }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A placed value's place in the published file, if in there, as `count` parts.
pub(crate) fn block_of<T: ?Sized>(value: &T, count: usize) -> Option<BlockAt> {
    let offset = PublishedMemory::current()?.offset_of(NonNull::from(value))?;
    let bytes = size_of_val(value).checked_div(count).unwrap_or(0);
    Some(BlockAt { offset: offset as u64, bytes: bytes as u64, count: count as u64 })
}
