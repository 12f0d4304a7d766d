//! The packets that the kernel dropped because too many waited for a process, as their interface counts them.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use pagepool_link::Netlink;

/// A look is a netlink request, which waits while another process changes interfaces.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The drops of an interface since this value exists.
#[derive(Debug)]
pub(crate) struct Drops {
    pub(crate) netlink: RefCell<Netlink>,
    index: u32,
    /// What the interface had counted before.
    before: u64,
    /// Drops of earlier interfaces.
    earlier: u64,
    /// The last known number, and when it was read.
    last: Cell<(u64, Option<Instant>)>,
}

impl Drops {
    pub(crate) fn since_now(mut netlink: Netlink, index: u32) -> Self {
        let before = netlink.unsent_at(index).ok().flatten().unwrap_or(0);
        let last = Cell::new((0, None));
        Self { netlink: RefCell::new(netlink), index, before, earlier: 0, last }
    }

    /// Goes on with another interface.
    pub(crate) fn follow(&mut self, index: u32) {
        let before = self.netlink.get_mut().unsent_at(index).ok().flatten().unwrap_or(0);
        (self.index, self.before, self.earlier) = (index, before, self.last());
    }

    /// The number, at most 0.1 s old.
    pub(crate) fn count(&self) -> u64 {
        let (last, read_at) = self.last.get();
        if read_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) { last } else { self.look() }
    }

    /// The number now; the last known one if the interface is gone, or in another network namespace.
    pub(crate) fn look(&self) -> u64 {
        let now = self.netlink.borrow_mut().unsent_at(self.index).ok().flatten();
        let since = |now: u64| self.earlier + now.saturating_sub(self.before);
        let count = now.map_or(self.last(), since);
        self.last.set((count, Some(Instant::now())));
        count
    }

    /// The last known number.
    pub(crate) fn last(&self) -> u64 {
        self.last.get().0
    }
}
