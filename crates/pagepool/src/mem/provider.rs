//! The seam between pools and memory: the trait for sources of pages.
//!
//! A provider never sees caches, lanes or counters. A pool never sees where memory comes from. Both count
//! pages in their common [`Area`]. Linux: `struct memory_provider_ops`, and the page allocator itself.

// UNSAFETY: pools make references into a provider's memory; the trait states what they rely on.
#![expect(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::mem::area::Area;
use crate::mem::page::{NodeId, PageIdx};

/// A source of pages.
///
/// All methods may be called from any thread at any time, `release` also from inside a drop. `release` cannot
/// fail. A pool calls none of them under a lock of its own, and holds no borrow of its state meanwhile, so an
/// implementation may itself drop buffers.
///
/// A pool made with `wakeup` that found no page is woken when any pool gives pages back. Pages that come to
/// a provider in another way, as by growth, wake nobody, except in an [`Arena`](crate::Arena).
///
/// Adding one: a file with this impl and a test that calls `testing::conformance_provider`. In this crate
/// `mem.rs` names the file and exports the type.
///
/// # Safety
/// Pools read and write the memory behind the pages that they are given, so an implementation must see to
/// this:
/// * [`area`](Self::area) gives the same area always, and no other provider's.
/// * Each page that [`reserve`](Self::reserve) gives lies within the area, its number is a multiple of `1 <<
///   order`, and all of it is in regions that are present. `reserve` says how many it wrote to the front of
///   `out`, and no more.
/// * No base page is given again, to anyone, before it was [released](Self::release); until then nobody else
///   uses its memory, its record or its marks, and its region stays present.
/// * Memory of present regions is there, and initialised, as long as the provider lives. A provider of
///   readable memory [closes](Area::close) its area before the memory goes.
///
/// Only code that is unsafe can give pages back, or implement this:
///
/// ```compile_fail,E0133
/// # use pagepool::{Arena, ArenaParams, PageIdx, Provider};
/// # let arena = Arena::new(ArenaParams::default()).unwrap();
/// arena.release(0, &[PageIdx(0x3000_0000)]); // was never given
/// ```
#[doc(alias = "memory_provider_ops")]
pub unsafe trait Provider: Send + Sync + fmt::Debug {
    /// The numbered pages that it gives.
    fn area(&self) -> &Arc<Area>;

    /// Fills `out` from the front with free pages of `order` and says how many. Their regions are present in
    /// the area.
    ///
    /// With a node, pages of that node; if there is none at all, pages of another node, as Linux's bulk
    /// allocation falls back (mm/page_alloc.c). Without a node, any pages.
    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize;

    /// Takes pages of `order` back.
    ///
    /// # Safety
    /// Every page was given by this provider's [`reserve`](Self::reserve) with this order, is named once, and
    /// was not released since. Nobody uses its memory, or refers to it, from now on.
    unsafe fn release(&self, order: u8, pages: &[PageIdx]);

    /// About how many more pages of `order` a pool could reserve now, growth included.
    fn available(&self, order: u8) -> usize;

    /// The NUMA node that the calling thread runs on, as this provider sees it; for pools without a
    /// preferred node of their own. Asked once per refill.
    fn current_node(&self) -> NodeId {
        NodeId(0)
    }

    /// Whether this node exists as far as the provider knows; a pool refuses to prefer one that does not.
    fn has_node(&self, node: NodeId) -> bool {
        let _ = node;
        true
    }

    /// What this memory is, for people: size, backing, what was requested and is not available.
    fn describe(&self) -> String;
}

/// Gives pages back to their provider, and wakes the pools that found none there.
///
/// # Safety
/// As [`Provider::release`].
pub(crate) unsafe fn give_back(provider: &dyn Provider, order: u8, pages: &[PageIdx]) {
    if !pages.is_empty() {
        // SAFETY: the caller keeps the promises.
        unsafe { provider.release(order, pages) };
        provider.area().starved().wake_all();
    }
}
