//! The part of a pool that only the owner's thread uses.
//!
//! Who    the owner, through `owner`; a thread that holds the slot's lock while the pool has no owner.

// UNSAFETY: it moves between threads under the slot's lock.
#![expect(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

use ::pagepool::{Bound, PoolRef};

pub(crate) struct OwnerHalf {
    /// The pool, for the owner's calls that take addresses.
    pub(crate) handle: PoolRef,
    /// Present while the pool is bound.
    pub(crate) bound: UnsafeCell<Option<Bound>>,
    /// Calls of the owner that have not returned: more than one when a callback calls the library.
    pub(crate) calls: Cell<u32>,
    /// Free entries for fragments: the first place, plus one.
    pub(crate) frags: Cell<u64>,
    /// Their number.
    pub(crate) free_frags: Cell<u32>,
}

// SAFETY: a thread that uses it owns the pool, or holds the slot's lock while the pool has no owner.
unsafe impl Send for OwnerHalf {}

impl OwnerHalf {
    pub(crate) fn new(handle: PoolRef) -> Self {
        let (frags, free_frags) = (Cell::new(0), Cell::new(0));
        Self { handle, bound: UnsafeCell::new(None), calls: Cell::new(0), frags, free_frags }
    }
}
