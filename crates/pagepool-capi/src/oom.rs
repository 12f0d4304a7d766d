//! Whether there is memory for what a call is about to allocate.
//!
//! What   Rust's collections end the process where the system refuses them memory. Before a call whose sizes
//!        come from its caller, or that makes something lasting, as much is asked for in a way that may be
//!        refused, and given back at once. So a limit (RLIMIT_AS, a cgroup without overcommit) is met here,
//!        as ENOMEM. Another thread may still be faster.
//! Cost   one `malloc` and `free`, on cold calls only.

use std::hint::black_box;

use ::pagepool::PoolRef;

use crate::error::CallResult;

/// More than any call allocates beside what its caller's sizes ask for.
pub(crate) const FEW: usize = 256 << 10;

/// Refuses a call for which there are not so many bytes.
pub(crate) fn expect(bytes: usize) -> CallResult<()> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(bytes)?;
    black_box(&room); // or the compiler would see that nobody uses it
    Ok(())
}

/// Refuses an arena of so many bytes if there is no memory for its lists. Beside its large tables, which are
/// allocated in a way that may be refused, an arena has some words per region.
pub(crate) fn expect_arena(bytes: u64) -> CallResult<()> {
    expect((bytes.min(1 << 42) >> 16) as usize + FEW)
}

/// Refuses the end of a pool if there is no memory for the lists of what leaves it.
pub(crate) fn expect_end(pool: &PoolRef) -> CallResult<()> {
    expect(pool.end_bytes().saturating_add(FEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(expect(FEW).is_ok());
        assert_eq!(expect(usize::MAX / 4).unwrap_err().report(), -libc::ENOMEM);
        assert_eq!(expect(usize::MAX).unwrap_err().report(), -libc::ENOMEM);
    }
}
