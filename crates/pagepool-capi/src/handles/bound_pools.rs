//! The pools that a thread owns, to be unbound when it ends.
//!
//! Who    the thread itself. What unbinds a pool stands above this file, so it is handed in.

use std::cell::{Cell, RefCell};

use crate::error::{CallError, CallResult};
use crate::handles::token::Token;

/// The pools that are bound to a thread.
struct BoundPools {
    pools: RefCell<Vec<Token>>,
    /// What unbinds one.
    unbind: Cell<fn(Token)>,
}

thread_local! {
    static BOUND_POOLS: BoundPools = const { BoundPools::new() };
}

impl BoundPools {
    const fn new() -> Self {
        Self { pools: RefCell::new(Vec::new()), unbind: Cell::new(|_| ()) }
    }
}

impl Drop for BoundPools {
    fn drop(&mut self) {
        for pool in self.pools.take() {
            self.unbind.get()(pool);
        }
    }
}

/// Whether this thread had a pool before, and so has what the first one takes, and place for another.
pub(crate) fn has_room() -> bool {
    let look = |mine: &BoundPools| mine.pools.try_borrow().is_ok_and(|mine| mine.len() < mine.capacity());
    BOUND_POOLS.try_with(look).unwrap_or(false)
}

/// Makes the end of this thread call `unbind` with a pool.
pub(crate) fn remember(pool: Token, unbind: fn(Token)) -> CallResult<()> {
    let note = |bound: &BoundPools| {
        let mut mine = bound.pools.try_borrow_mut().map_err(|_| too_late())?;
        mine.try_reserve(1).map_err(|_| CallError::no_memory())?;
        mine.push(pool);
        bound.unbind.set(unbind);
        Ok(())
    };
    BOUND_POOLS.try_with(note).unwrap_or_else(|_| Err(too_late()))
}

/// Undoes [`remember`].
pub(crate) fn forget(pool: Token) {
    let _ = BOUND_POOLS.try_with(|mine| {
        if let Ok(mut mine) = mine.pools.try_borrow_mut() {
            mine.retain(|&known| known != pool);
        }
    });
}

fn too_late() -> CallError {
    CallError::fixed(libc::EPERM, c"a thread that is ending cannot become the owner of a pool")
}
