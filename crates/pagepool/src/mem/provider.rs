//! The trait for sources of pages: between pools and memory.
//!
//! A provider knows no caches, lanes or counters; a pool does not know where memory comes from. Both count
//! pages in their common [`Area`]. Linux: `struct memory_provider_ops`, and the page allocator itself.

// UNSAFETY: pools make references into a provider's memory; the trait states what they rely on.
#![expect(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::mem::area::Area;
use crate::mem::page::{NodeId, PageIdx};

/// A source of pages.
///
/// Any thread may call any method at any time, `release` also inside a drop. `release` cannot fail. A pool
/// calls them without a lock of its own and without a borrow of its state, so an implementation may drop
/// buffers.
///
/// A pool with `wakeup` that found no page is woken when any pool releases pages. Pages that a provider
/// gains in another way, such as growth, wake no pool, except in an [`Arena`](crate::Arena).
///
/// To add one: a file with this impl and a test that calls `pagepool_testing::conformance_provider`. In this crate
/// `mem.rs` declares the file and exports the type.
///
/// # Safety
/// Pools read and write the memory of the pages that they get. So an implementation must ensure:
/// * [`area`](Self::area) always returns one area, which is no other provider's.
/// * Each page from [`reserve`](Self::reserve) lies within the area, its number is a multiple of `1 <<
///   order`, and all of it is in present regions. `reserve` returns how many pages it wrote to the front of
///   `out`.
/// * No base page is given again, to any caller, before it was [released](Self::release). Until then no
///   other code uses its memory, its record or its marks, and its region stays present.
/// * Memory of present regions exists and is initialised while the provider lives. A provider of readable
///   memory [closes](Area::close) its area before it frees the memory.
///
/// Both releasing pages and implementing this trait require unsafe code:
///
/// ```compile_fail,E0133
/// # use pagepool::{Arena, ArenaParams, PageIdx, Provider};
/// # let arena = Arena::new(ArenaParams::default()).unwrap();
/// arena.release(0, &[PageIdx(0x3000_0000)]); // was never given
/// ```
#[doc(alias = "memory_provider_ops")]
pub unsafe trait Provider: Send + Sync + fmt::Debug {
    /// The area of all its pages.
    fn area(&self) -> &Arc<Area>;

    /// Fills `out` from the front with free pages of `order`, and returns how many. Their regions are
    /// present in the area.
    ///
    /// With a node, gives pages of that node; if it has none, pages of another, like Linux's bulk allocation
    /// (mm/page_alloc.c). Without a node, any pages.
    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize;

    /// Returns pages of `order` to the provider.
    ///
    /// # Safety
    /// Each page was given by this provider's [`reserve`](Self::reserve) with this order, is named once, and
    /// was not released since. No code uses its memory, or refers to it, from now on.
    unsafe fn release(&self, order: u8, pages: &[PageIdx]);

    /// About how many more pages of `order` a pool could reserve, including by growth.
    fn available(&self, order: u8) -> usize;

    /// The NUMA node that the calling thread runs on, as this provider sees it. A pool without a preferred
    /// node calls it once per refill.
    fn current_node(&self) -> NodeId {
        NodeId(0)
    }

    /// Whether the node exists, as far as the provider knows. A pool refuses to prefer one that does not.
    fn has_node(&self, node: NodeId) -> bool {
        let _ = node;
        true
    }

    /// Describes the memory for people: size, backing, what was requested and is not available.
    fn describe(&self) -> String;
}

/// Releases pages to their provider, and wakes the pools that found none there.
///
/// # Safety
/// The conditions of [`Provider::release`].
pub(crate) unsafe fn give_back(provider: &dyn Provider, order: u8, pages: &[PageIdx]) {
    if !pages.is_empty() {
        // SAFETY: the caller keeps the conditions.
        unsafe { provider.release(order, pages) };
        provider.area().starved.wake_all();
    }
}
