//! The pools that a thread owns, to be unbound when it ends.
//!
//! Who    the thread itself. What unbinds a pool stands above this file, so it is handed in.

use std::cell::RefCell;

use crate::error::{CallError, CallResult};
use crate::handles::token::Token;
use crate::oom;

/// The pools that are bound to a thread.
struct BoundPools(RefCell<Vec<BoundPool>>);

struct BoundPool {
    pool: Token,
    unbind: fn(Token),
}

thread_local! {
    static BOUND_POOLS: BoundPools = const { BoundPools(RefCell::new(Vec::new())) };
}

impl Drop for BoundPools {
    fn drop(&mut self) {
        for bound in self.0.take() {
            (bound.unbind)(bound.pool);
        }
    }
}

/// Makes the end of this thread call `unbind` with a pool.
pub(crate) fn remember(pool: Token, unbind: fn(Token)) -> CallResult<()> {
    const TOO_LATE: CallError =
        CallError::fixed(libc::EPERM, c"a thread that is ending cannot become the owner of a pool");
    let note = |bound: &BoundPools| {
        let mut pools = bound.0.try_borrow_mut().map_err(|_| TOO_LATE)?;
        if pools.len() == pools.capacity() {
            oom::expect(oom::FEW)?; // for what else a thread's first pool allocates
            pools.try_reserve(1)?;
        }
        pools.push(BoundPool { pool, unbind });
        Ok(())
    };
    BOUND_POOLS.try_with(note).unwrap_or(Err(TOO_LATE))
}

/// Undoes [`remember`].
pub(crate) fn forget(pool: Token) {
    let _ = BOUND_POOLS.try_with(|bound| {
        if let Ok(mut pools) = bound.0.try_borrow_mut() {
            pools.retain(|known| known.pool != pool);
        }
    });
}
