//! A provider that fails at intervals.

// UNSAFETY: it passes on the promises of another provider.
#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagepool::{Area, NodeId, PageIdx, Provider};

/// Wraps a provider: every `n`-th reservation gives at most half of the requested pages, rounded down.
///
/// ```
/// use pagepool_testing::FailNth;
/// use pagepool::{Arena, ArenaParams, PageIdx, Provider};
///
/// let second_fails = FailNth::new(Arena::new(ArenaParams::default())?, 2);
/// let mut pages = [PageIdx(0); 8];
/// let first = second_fails.reserve(0, None, &mut pages[..4]);
/// let got = [first, second_fails.reserve(0, None, &mut pages[4..])];
/// assert_eq!(got, [4, 2]);
/// // SAFETY: they were reserved just now, and nobody uses them.
/// unsafe { second_fails.release(0, &pages[..6]) };
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct FailNth {
    inner: Arc<dyn Provider>,
    every: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
}

impl FailNth {
    /// Fails every `every`-th reservation of `inner`; 0: none, 1: each.
    pub fn new(inner: Arc<dyn Provider>, every: u64) -> Arc<Self> {
        Arc::new(Self { inner, every: every.into(), calls: 0.into(), failed: 0.into() })
    }

    /// Changes the interval of failures, from the next reservation on.
    pub fn set_every(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Number of reservations made to fail.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

// SAFETY: all its pages are the inner provider's, which it keeps.
unsafe impl Provider for FailNth {
    fn area(&self) -> &Arc<Area> {
        self.inner.area()
    }

    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let every = self.every.load(Ordering::Relaxed);
        if every == 0 || !call.is_multiple_of(every) {
            return self.inner.reserve(order, node, out);
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        let half = out.len() / 2;
        self.inner.reserve(order, node, &mut out[..half])
    }

    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        // SAFETY: the caller promises this for pages that the inner provider gave.
        unsafe { self.inner.release(order, pages) };
    }

    fn available(&self, order: u8) -> usize {
        self.inner.available(order)
    }

    fn current_node(&self) -> NodeId {
        self.inner.current_node()
    }

    fn has_node(&self, node: NodeId) -> bool {
        self.inner.has_node(node)
    }

    fn describe(&self) -> String {
        format!("{}; one reservation in {} fails", self.inner.describe(), self.every.load(Ordering::Relaxed))
    }
}
