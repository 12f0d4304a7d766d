//! The packets that C holds by token.
//!
//! What   a row per packet, with a lock of its own, so that threads which have different packets do not meet.
//!        Rows are made 4096 at a time and never freed, only used again.
//! Who    any thread, one at a time for each packet: a call that finds the packet's row locked is refused and
//!        does not wait. So what a call makes happen (a callback, when memory goes home) may use all packets
//!        but that one.
//! Cost   a lock that nobody contends; to make or end a packet also that of the list of free rows, for
//!        moments.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use ::pagepool::SkBuff;

use crate::error::{CallError, CallResult};
use crate::handles::token::{HandleKind, Token};

/// Rows that are made at once, and how often.
const IN_CHUNK: usize = 4096;
const CHUNKS: usize = 1024;

struct SkbRow {
    generation: u32,
    packet: Option<SkBuff>,
}

type SkbChunk = Box<[Mutex<SkbRow>]>;

static ROWS: [OnceLock<SkbChunk>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];

/// Rows that are empty, and how many there are at all.
struct FreeRows {
    rows: Vec<u32>,
    made: usize,
}

static FREE: Mutex<FreeRows> = Mutex::new(FreeRows { rows: Vec::new(), made: 0 });

fn free() -> MutexGuard<'static, FreeRows> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FreeRows {
    fn make(&mut self) -> CallResult<()> {
        const FULL: CallError =
            CallError::fixed(libc::ENOSPC, c"there are 4194304 packets, the limit: put some first");
        let chunk = ROWS.get(self.made / IN_CHUNK).ok_or(FULL)?;
        let mut rows = Vec::new();
        rows.try_reserve_exact(IN_CHUNK).map_err(|_| CallError::no_memory())?;
        // Room for every row, so that a row can always be given back.
        self.rows.try_reserve(self.made + IN_CHUNK).map_err(|_| CallError::no_memory())?;
        rows.extend((0..IN_CHUNK).map(|_| Mutex::new(SkbRow { generation: 0, packet: None })));
        let _ = chunk.set(rows.into_boxed_slice()); // under the lock, so once
        self.rows.extend((self.made..self.made + IN_CHUNK).rev().map(|at| at as u32));
        self.made += IN_CHUNK;
        Ok(())
    }
}

fn row(at: u32) -> Option<&'static Mutex<SkbRow>> {
    ROWS.get(at as usize / IN_CHUNK)?.get()?.get(at as usize % IN_CHUNK)
}

/// A row for a packet that is about to be made; it is free again where that fails.
pub(crate) struct VacantRow(u32);

impl VacantRow {
    pub(crate) fn take() -> CallResult<Self> {
        let mut free = free();
        if free.rows.is_empty() {
            free.make()?;
        }
        free.rows.pop().map(Self).ok_or(CallError::no_memory())
    }

    /// Puts the packet there.
    pub(crate) fn fill(self, packet: SkBuff) -> CallResult<Token> {
        let at = self.0;
        let mut row = row(at).ok_or(CallError::no_handle())?.lock().unwrap_or_else(PoisonError::into_inner);
        row.generation = row.generation.wrapping_add(1).max(1);
        row.packet = Some(packet);
        std::mem::forget(self);
        Ok(Token::new(HandleKind::Skb, at, row.generation))
    }
}

impl Drop for VacantRow {
    fn drop(&mut self) {
        free().rows.push(self.0); // room for every row was reserved
    }
}

/// The row of a token, locked, with a packet in it.
fn occupied(token: Token) -> CallResult<MutexGuard<'static, SkbRow>> {
    const BUSY: CallError = CallError::fixed(
        libc::EBUSY,
        c"another call uses this packet now: on another thread, or the call that made this callback",
    );
    let row = row(token.place()).filter(|_| token.is(HandleKind::Skb)).ok_or(CallError::no_handle())?;
    let row = match row.try_lock() {
        Ok(row) => row,
        Err(TryLockError::Poisoned(row)) => row.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(BUSY),
    };
    if token.generation() == row.generation && row.packet.is_some() {
        return Ok(row);
    }
    let was = (1..=row.generation).contains(&token.generation());
    Err(if was { CallError::stale() } else { CallError::no_handle() })
}

/// Uses a packet.
pub(crate) fn with<R>(token: Token, work: impl FnOnce(&mut SkBuff) -> CallResult<R>) -> CallResult<R> {
    let mut row = occupied(token)?;
    work(row.packet.as_mut().ok_or(CallError::stale())?)
}

/// Takes a packet out, for good.
pub(crate) fn remove(token: Token) -> CallResult<SkBuff> {
    let packet = occupied(token)?.packet.take().ok_or(CallError::stale())?;
    drop(VacantRow(token.place()));
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use ::pagepool::SkbCache;

    use super::*;

    #[test]
    fn a_row_is_used_again_by_another_token() {
        let cache = SkbCache::new(1).unwrap();
        let packet = || SkBuff::with_capacity(&cache, 0, 10).unwrap();
        let row = VacantRow::take().unwrap();
        let at = row.0;
        drop(row);
        let [first, second] = [0, 1].map(|_| {
            let token = VacantRow::take().unwrap().fill(packet()).unwrap();
            assert_eq!(token.place(), at);
            drop(remove(token).unwrap());
            token
        });
        assert_ne!(first, second);
        let third = VacantRow::take().unwrap().fill(packet()).unwrap();
        for stale in [first, second] {
            assert_eq!(with(stale, |_| Ok(())).unwrap_err().errno(), libc::ESTALE);
            assert_eq!(remove(stale).unwrap_err().errno(), libc::ESTALE);
        }
        drop(remove(third).unwrap());
    }
}
