//! Values that lie in memory which others may read, if this process publishes; else on the heap.
//!
//! What   [`Placed`] is a box, [`Shared`] a count of one that leads to its value without a second look.
//! Why    a pool, its lanes and the counters of its deferred queue are placed. So they need not be copied
//!        anywhere to be seen, and are as they were when the process is killed.
//! Heap   glibc's memalign cuts a block out of a larger one and leaves holes that nothing fits. So a block
//!        has room to align its value in, and its start is kept: only by that leak checkers find it.
//! Cost   reaching a value is one load, wherever it lies.

// UNSAFETY: values are made, reached and dropped by address.
#![expect(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::sys::published_layout::BlockAt;
use crate::sys::published_memory::PublishedMemory;

/// A box in published memory, if there is any.
pub(crate) struct Placed<T: ?Sized> {
    value: NonNull<T>,
    start: BlockStart,
}

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send + ?Sized> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + ?Sized> Sync for Placed<T> {}

impl<T> Placed<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Self {
        let (start, at) = BlockStart::take(Layout::new::<T>(), PublishedMemory::take);
        let at = at.cast::<T>();
        // SAFETY: the place is as large as the value, and nobody else has it.
        unsafe { at.write(value) };
        Self { value: at, start }
    }
}

impl<T> Placed<[T]> {
    /// The values that an iterator has, which knows how many.
    pub(crate) fn all(values: impl ExactSizeIterator<Item = T>) -> Self {
        Self::all_of(values, PublishedMemory::take)
    }

    /// The same for values without which others may still be seen: they leave them most of the room.
    pub(crate) fn all_sparingly(values: impl ExactSizeIterator<Item = T>) -> Self {
        Self::all_of(values, PublishedMemory::take_sparingly)
    }

    fn all_of(mut values: impl ExactSizeIterator<Item = T>, place: Take) -> Self {
        let len = values.len();
        let layout = Layout::array::<T>(len).expect("a few values fit the address space");
        if layout.size() == 0 {
            let value = NonNull::slice_from_raw_parts(NonNull::dangling(), len);
            return Self { value, start: BlockStart(NonNull::dangling()) };
        }
        let (start, first) = BlockStart::take(layout, place);
        let first = first.cast::<T>();
        for at in 0..len {
            let value = values.next().expect("an iterator has as many values as it says");
            // SAFETY: the place has room for `len` values.
            let at = unsafe { first.add(at) };
            // SAFETY: as above, and nobody else has it.
            unsafe { at.write(value) };
        }
        Self { value: NonNull::slice_from_raw_parts(first, len), start }
    }
}

impl<T: ?Sized> Deref for Placed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it owns the value, which was written when this was made.
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

/// Where a block begins that a value lies in: the value's own address in published memory, at or before it
/// on the heap.
#[derive(Clone, Copy)]
struct BlockStart(NonNull<u8>);

impl BlockStart {
    /// A place for a value of this layout, and the address for the value.
    fn take(layout: Layout, place: Take) -> (Self, NonNull<u8>) {
        let published = PublishedMemory::current().and_then(|memory| place(memory, layout));
        if let Some(at) = published {
            return (Self(at), at);
        }
        let on_heap = on_heap(layout);
        // SAFETY: the values that are placed have bytes.
        let start = NonNull::new(unsafe { alloc(on_heap) }).unwrap_or_else(|| handle_alloc_error(on_heap));
        // SAFETY: the block is longer than the value by what its alignment may take.
        let at = unsafe { start.add(start.as_ptr().align_offset(layout.align())) };
        (Self(start), at)
    }
}

/// How published memory gives room.
type Take = fn(&PublishedMemory, Layout) -> Option<NonNull<u8>>;

/// A block for a value, wherever in it the value is aligned.
fn on_heap(layout: Layout) -> Layout {
    let room = layout.align().saturating_sub(HEAP_ALIGN);
    Layout::from_size_align(layout.size() + room, layout.align().min(HEAP_ALIGN)).expect("a few values fit")
}

/// How `malloc` aligns all it gives.
const HEAP_ALIGN: usize = 16;

/// Gives a place back.
struct PlaceBack(BlockStart, Layout);

impl Drop for PlaceBack {
    fn drop(&mut self) {
        let Self(BlockStart(start), layout) = *self;
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

/// A count of a placed value, as `Arc` is.
pub(crate) struct Shared<T: ?Sized> {
    at: NonNull<T>,
    keep: Arc<Placed<T>>,
}

// SAFETY: as for the `Arc` in it.
unsafe impl<T: Send + Sync + ?Sized> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync + ?Sized> Sync for Shared<T> {}

impl<T: ?Sized> Shared<T> {
    /// The count.
    pub(crate) fn keep(this: &Self) -> &Arc<Placed<T>> {
        &this.keep
    }

    /// Where the value is in the published file: `count` of them together, if it is in there.
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
        // SAFETY: the count keeps the value.
        unsafe { self.at.as_ref() }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Where a placed value is in the published file, `count` values together, if it is in there.
pub(crate) fn block_of<T: ?Sized>(value: &T, count: usize) -> Option<BlockAt> {
    let offset = PublishedMemory::current()?.offset_of(NonNull::from(value))?;
    let bytes = size_of_val(value).checked_div(count).unwrap_or(0);
    Some(BlockAt { offset: offset as u64, bytes: bytes as u64, count: count as u64 })
}
