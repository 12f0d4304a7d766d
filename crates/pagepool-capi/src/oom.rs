//! Checks that there is memory before a call allocates it.
//!
//! What   Rust's collections end the process if the system refuses them memory. Before a call whose sizes
//!        come from its caller, or that creates something lasting, the library allocates as much in a way
//!        that may fail, and frees it at once. So a limit (RLIMIT_AS, a cgroup without overcommit) is met
//!        here, as ENOMEM. Another thread may still take the memory first.
//! Cost   one `malloc` and `free`, on cold calls only.

use std::hint::black_box;

use ::pagepool::PoolRef;

use crate::error::CallResult;

/// More bytes than any call allocates beyond its caller's sizes.
pub(crate) const FEW: usize = 256 << 10;

/// Refuses a call if this many bytes cannot be allocated.
pub(crate) fn expect(bytes: usize) -> CallResult<()> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(bytes)?;
    black_box(&room); // so that the compiler keeps the allocation
    Ok(())
}

/// Refuses an arena of this many bytes if there is no memory for its lists, some words per region. Its large
/// tables are allocated in a way that may fail.
pub(crate) fn expect_arena(bytes: u64) -> CallResult<()> {
    expect((bytes.min(1 << 42) >> 16) as usize + FEW)
}

/// Refuses to destroy a pool if there is no memory for the lists of what leaves it.
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
