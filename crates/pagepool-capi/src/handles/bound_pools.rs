//! The pools that a thread owns, to be unbound when it ends.
//!
//! Who    the thread itself. The unbind function is a parameter, because its file is in a layer above this
//!        one.
//! End    the destructor of `BOUND_POOLS`; for a thread that binds its first pool after that, `END_HOOK`. A
//!        child of `fork` that calls `exit` runs the destructors of the thread that forked, and a thread that
//!        the child does not have may hold a lock. So a pool is unbound only in the process that bound it.

use std::cell::{Cell, RefCell};

use ::pagepool::EndHook;

use crate::error::{CallError, CallResult};
use crate::handles::token::Token;
use crate::oom;

struct BoundPools {
    pools: RefCell<Vec<BoundPool>>,
    /// The thread is past its exit hook: nothing would unbind a pool.
    ended: Cell<bool>,
}

struct BoundPool {
    pool: Token,
    unbind: fn(Token),
    process: u32,
}

thread_local! {
    static BOUND_POOLS: BoundPools =
        const { BoundPools { pools: RefCell::new(Vec::new()), ended: Cell::new(false) } };
}

static END_HOOK: EndHook = EndHook::new(|| {
    let _ = BOUND_POOLS.try_with(BoundPools::end);
});

impl BoundPools {
    fn end(&self) {
        self.ended.set(true);
        let process = std::process::id();
        for bound in self.pools.take().into_iter().filter(|bound| bound.process == process) {
            (bound.unbind)(bound.pool);
        }
    }
}

impl Drop for BoundPools {
    fn drop(&mut self) {
        self.end();
        END_HOOK.clear();
    }
}

/// Makes the end of this thread call `unbind` with a pool.
pub(crate) fn remember(pool: Token, unbind: fn(Token)) -> CallResult<()> {
    const TOO_LATE: CallError =
        CallError::fixed(libc::EPERM, c"a thread that is ending cannot become the owner of a pool");
    let note = |bound: &BoundPools| {
        if bound.ended.get() {
            return Err(TOO_LATE);
        }
        let mut pools = bound.pools.try_borrow_mut().map_err(|_| TOO_LATE)?;
        if pools.len() == pools.capacity() {
            oom::expect(oom::FEW)?; // for the other allocations of a thread's first pool
            pools.try_reserve(1)?;
        }
        END_HOOK.set();
        pools.push(BoundPool { pool, unbind, process: std::process::id() });
        Ok(())
    };
    BOUND_POOLS.try_with(note).unwrap_or(Err(TOO_LATE))
}

pub(crate) fn forget(pool: Token) {
    let _ = BOUND_POOLS.try_with(|bound| {
        if let Ok(mut pools) = bound.pools.try_borrow_mut() {
            pools.retain(|known| known.pool != pool);
        }
    });
}
