//! A system with another page size, for tests of mapping, protecting and releasing memory.

use pagepool::PAGE_SIZE;
use pagepool::internal::pretend_system_page;

/// While this exists, [`system_page_size`](pagepool::system_page_size) gives another size in this process. The
/// kernel keeps its own. A larger simulated page is whole pages of the kernel, so its calls succeed. Debug
/// builds panic at a call that is not in whole simulated pages.
///
/// It applies to all threads: make arenas while it exists, drop them before it, and run no other test in the
/// process.
///
/// ```
/// use pagepool_testing::SystemPage;
/// let page = SystemPage::pretend(64 << 10);
/// assert_eq!(pagepool::system_page_size(), 64 << 10);
/// drop(page);
/// ```
#[derive(Debug)]
#[must_use]
pub struct SystemPage {
    was: usize,
}

impl SystemPage {
    /// Simulates pages of `bytes` bytes: a power of two from [`PAGE_SIZE`] on.
    pub fn pretend(bytes: usize) -> Self {
        assert!(bytes.is_power_of_two() && bytes >= PAGE_SIZE, "no system has pages of {bytes} bytes");
        Self { was: pretend_system_page(bytes) }
    }
}

impl Drop for SystemPage {
    fn drop(&mut self) {
        pretend_system_page(self.was);
    }
}
