//! The device's half of a split virtqueue, for devices that run in this process. `ring.rs` has the protocol.
//!
//! Trust  none: heads and successors are masked to the ring's size.

#[cfg(all(test, loom))]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{Ordering, fence};

use super::ring::{RingParts, Used, flags_of, is_passed, wants_signals};
use super::sys::Descriptor;

/// A buffer that the driver described.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Described {
    pub(crate) at: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

#[derive(Debug)]
pub(crate) struct DeviceRing {
    parts: RingParts,
    /// Heads taken, and known to be there.
    taken: u16,
    seen: u16,
    /// Entries ever completed, and published.
    completed: u16,
    published: u16,
    has_wishes: bool,
}

impl DeviceRing {
    pub(crate) fn new(parts: RingParts, has_wishes: bool) -> Self {
        Self { parts, taken: 0, seen: 0, completed: 0, published: 0, has_wishes }
    }

    /// Heads that the driver has published and that are not taken.
    #[inline]
    pub(crate) fn pending(&mut self) -> usize {
        if self.seen == self.taken {
            self.look();
        }
        self.known()
    }

    /// The same, also of those published since the last look.
    pub(crate) fn pending_now(&mut self) -> usize {
        self.look();
        self.known()
    }

    #[inline]
    fn look(&mut self) {
        let index = self.parts.available.index.at(0).load(Ordering::Acquire); // pairs with the driver's publish
        self.seen = u16::from_le(index);
    }

    #[inline]
    fn known(&self) -> usize {
        usize::from(self.seen.wrapping_sub(self.taken)).min(self.parts.size.into())
    }

    /// The head that is `ahead` of the next.
    #[inline]
    pub(crate) fn peek(&self, ahead: u16) -> u16 {
        let number = self.taken.wrapping_add(ahead);
        u16::from_le(self.parts.available.entries.at(number).load(Ordering::Relaxed))
    }

    /// Takes the next head, which must be pending.
    #[inline]
    pub(crate) fn take(&mut self) -> u16 {
        let head = self.peek(0);
        self.taken = self.taken.wrapping_add(1);
        head
    }

    #[inline]
    pub(crate) fn described(&self, number: u16) -> Described {
        let Descriptor(first, second) = self.parts.descriptors.at(number);
        let at = u64::from_le(first.load(Ordering::Relaxed));
        let rest = u64::from_le(second.load(Ordering::Relaxed));
        Described { at, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    /// Completes a chain, unseen by the driver.
    #[inline]
    pub(crate) fn complete(&mut self, Used { head, len }: Used) {
        let entry = u64::from(head) | u64::from(len) << 32;
        self.parts.used.entries.at(self.completed).store(entry.to_le(), Ordering::Relaxed);
        self.completed = self.completed.wrapping_add(1);
    }

    /// Publishes what was completed. Returns whether the driver wants a signal.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        let before = std::mem::replace(&mut self.published, self.completed);
        if before == self.completed {
            return false;
        }
        self.parts.used.index.at(0).store(self.completed.to_le(), Ordering::Release); // pairs with Ring::look
        fence(Ordering::SeqCst); // pairs with the fence of Ring::request_signal
        let available = &self.parts.available;
        if self.has_wishes {
            let wish = u16::from_le(available.wish.at(0).load(Ordering::Relaxed));
            is_passed(wish, self.completed, before)
        } else {
            wants_signals(u16::from_le(available.flags.at(0).load(Ordering::Relaxed)))
        }
    }

    /// Moves the index of completed entries, as a broken device.
    pub(crate) fn shift(&mut self, by: u16) {
        self.completed = self.completed.wrapping_add(by);
    }

    /// Whether the driver is to signal the next head. Look for pending ones before a sleep.
    pub(crate) fn want_signals(&mut self, wants: bool) {
        let used = &self.parts.used;
        if self.has_wishes {
            let wish = if wants { self.taken } else { self.taken.wrapping_sub(1) };
            used.wish.at(0).store(wish.to_le(), Ordering::Relaxed);
        } else {
            used.flags.at(0).store(flags_of(wants).to_le(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst); // pairs with the fence of Ring::publish
    }
}
