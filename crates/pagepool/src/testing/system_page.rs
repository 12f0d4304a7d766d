//! A system with pages of another size, for tests of what is mapped, protected and given back.

use crate::mem::page::PAGE_SIZE;
use crate::sys::memory::pretend_system_page;

/// While it lives, this process's [`system_page_size`](crate::system_page_size) is another. The kernel's is
/// not: with a larger size than its own, what is done in whole pages is so for the kernel, too. Debug builds
/// panic at a call to it that is not.
///
/// For all threads: make arenas while it lives, drop them before it, and have no other test beside.
///
/// ```
/// use pagepool::testing::SystemPage;
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
    /// Pages of so many bytes: a power of two from [`PAGE_SIZE`] on.
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
