//! Short names of pools: numbers of 16 bits, which index each thread's table of lanes.
//!
//! Who    a name is taken when a pool is created and released when it is freed, under a lock.
//! Limit  65,535 pools at a time; later ones have no name.

use std::num::NonZeroU16;

use crate::sys::sync::UnseenLock;

static FREE: UnseenLock<FreeNames> = UnseenLock::new(FreeNames { used: 0, given_back: Vec::new() });

/// Unused names.
struct FreeNames {
    /// Names 1 to `used` were taken at least once.
    used: u16,
    given_back: Vec<NonZeroU16>,
}

impl FreeNames {
    fn take(&mut self) -> Option<NonZeroU16> {
        if let Some(again) = self.given_back.pop() {
            return Some(again);
        }
        self.used = self.used.checked_add(1)?;
        NonZeroU16::new(self.used)
    }
}

/// A pool's short name, or none. Its drop releases the name.
#[derive(Debug)]
pub(crate) struct ShortName(Option<NonZeroU16>);

impl ShortName {
    /// Takes an unused name, if there is one.
    pub(crate) fn take() -> Self {
        Self(FREE.lock().take())
    }

    /// The name, if there is one.
    pub(crate) fn name(&self) -> Option<NonZeroU16> {
        self.0
    }
}

impl Drop for ShortName {
    fn drop(&mut self) {
        if let Some(name) = self.0 {
            FREE.lock().given_back.push(name);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_name_that_was_given_back_is_used_again() {
        for _ in 0..70_000 {
            assert!(ShortName::take().name().is_some(), "all names are taken, though each was given back");
        }
    }

    #[test]
    fn each_name_is_one_pools_at_a_time() {
        let mut free = FreeNames { used: 0, given_back: Vec::new() };
        let taken: HashSet<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(taken.len(), 65535);
        assert_eq!(free.take(), None, "a pool beyond them has no name");
        free.given_back.push(NonZeroU16::MIN);
        assert_eq!((free.take(), free.take()), (Some(NonZeroU16::MIN), None));
    }
}
