//! What only the owner's thread touches of a pool.
//!
//! Who    the owner, through `owner`; whoever holds the slot's lock while nobody owns the pool.

// UNSAFETY: it goes from thread to thread under the slot's lock.
#![expect(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

use ::pagepool::{Bound, PoolRef};

/// The owner's part of a pool.
pub(crate) struct OwnerHalf {
    /// The pool, for the owner's calls that take addresses.
    pub(crate) handle: PoolRef,
    /// There while the pool is bound.
    pub(crate) bound: UnsafeCell<Option<Bound>>,
    /// Calls of the owner that have not returned: more than one when a callback calls back.
    pub(crate) calls: Cell<u32>,
    /// Free entries for fragments: the first one's place, plus one.
    pub(crate) frags: Cell<u64>,
    /// How many these are.
    pub(crate) free_frags: Cell<u32>,
}

// SAFETY: whoever touches it owns the pool, or holds the slot's lock while nobody does.
unsafe impl Send for OwnerHalf {}

impl OwnerHalf {
    pub(crate) fn new(handle: PoolRef) -> Self {
        let (frags, free_frags) = (Cell::new(0), Cell::new(0));
        Self { handle, bound: UnsafeCell::new(None), calls: Cell::new(0), frags, free_frags }
    }
}
