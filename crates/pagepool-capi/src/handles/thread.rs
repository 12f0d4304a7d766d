//! Which thread this is, and what happens to its pools when it ends.
//!
//! What   a thread is known by the address of its control block, one instruction to read, where thread-local memory of a
//!        shared library costs a call. The address is unique among threads that live, and a thread that ends unbinds its
//!        pools first, so no pool ever waits for an owner that is gone.
//! Who    anyone.

// UNSAFETY: one instruction that reads a register.
#![expect(unsafe_code)]

use std::cell::RefCell;

use crate::error::{Outcome, Refusal};
use crate::handles::token::Token;

/// The calling thread: never 0, and never a small number.
#[inline(always)]
pub(crate) fn me() -> u64 {
    let me: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on Linux the word at fs:0 is the address of the thread's control block.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) me, options(pure, readonly, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the register may be read, and holds the address of the thread's control block.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) me, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        thread_local!(static MARK: u8 = const { 0 });
        me = MARK.with(|mark| std::ptr::from_ref(mark).addr() as u64);
    }
    me
}

/// The pools that are bound to a thread.
struct Mine(RefCell<Vec<Token>>);

thread_local! {
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
}

impl Drop for Mine {
    fn drop(&mut self) {
        for pool in self.0.take() {
            let _ = crate::api::pool::unbind(pool); // one that was unbound or destroyed before is refused
        }
    }
}

/// Whether this thread had a pool before, and so has what the first one takes, and place for another.
pub(crate) fn has_room() -> bool {
    let look = |mine: &Mine| mine.0.try_borrow().is_ok_and(|mine| mine.len() < mine.capacity());
    MINE.try_with(look).unwrap_or(false)
}

/// Makes the end of this thread unbind a pool.
pub(crate) fn remember(pool: Token) -> Outcome<()> {
    let note = |mine: &Mine| {
        let mut mine = mine.0.try_borrow_mut().map_err(|_| too_late())?;
        mine.try_reserve(1).map_err(|_| Refusal::no_memory())?;
        mine.push(pool);
        Ok(())
    };
    MINE.try_with(note).unwrap_or_else(|_| Err(too_late()))
}

/// Undoes [`remember`].
pub(crate) fn forget(pool: Token) {
    let _ = MINE.try_with(|mine| {
        if let Ok(mut mine) = mine.0.try_borrow_mut() {
            mine.retain(|&known| known != pool);
        }
    });
}

fn too_late() -> Refusal {
    Refusal::fixed(libc::EPERM, c"a thread that is ending cannot become the owner of a pool")
}
