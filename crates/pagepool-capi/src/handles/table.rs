//! A table of things that C holds by token, for all kinds but pools and buffers.
//!
//! What   rows in chunks, each twice as large as the one before. Rows never move and are never freed, only
//!        used again with their next generation. Each has a lock of its own, so that threads which have
//!        different things do not meet.
//! Who    any thread. Things are made before they are put in, and dropped after they were taken out, so a
//!        lock that calls wait for has nothing foreign under it. A call about a packet may make foreign code
//!        run (a callback, when a buffer returns). So it does not wait for a locked row but is refused, and
//!        the callback may use all packets but that one.
//! Cost   the row's lock; to put a thing in or take it out also that of the list of free rows, for moments.

use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::error::{CallError, CallResult};
use crate::handles::token::{Generations, HandleKind, PLACES, Token};

/// Rows in the first chunk.
const FIRST: usize = 64;
/// With these chunks a table has almost as many rows as a token can name.
const CHUNKS: usize = (PLACES as usize / FIRST).ilog2() as usize;

pub(crate) struct HandleTable<T> {
    kind: HandleKind,
    /// Why a call that finds a row locked is refused; without a text it waits.
    busy: Option<&'static CStr>,
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    free: Mutex<FreeRows>,
}

type Chunk<T> = Box<[Mutex<TableRow<T>>]>;

struct TableRow<T> {
    generations: Generations,
    thing: Option<T>,
}

/// Rows that are empty, and how many there are at all.
struct FreeRows {
    rows: Vec<u32>,
    made: usize,
}

impl<T> HandleTable<T> {
    pub(crate) const fn new(kind: HandleKind, busy: Option<&'static CStr>) -> Self {
        let free = Mutex::new(FreeRows { rows: Vec::new(), made: 0 });
        Self { kind, busy, chunks: [const { OnceLock::new() }; CHUNKS], free }
    }

    fn free(&self) -> MutexGuard<'_, FreeRows> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_chunk(&self, free: &mut FreeRows) -> CallResult<()> {
        let first = free.made;
        let more = first + FIRST; // 64, 128, 256, ...
        let chunk = self.chunks.get((more / FIRST).ilog2() as usize).ok_or(CallError::NO_MEMORY)?;
        let mut rows = Vec::new();
        rows.try_reserve_exact(more)?;
        // Room for every row, so that a row can always be given back.
        free.rows.try_reserve(first + more)?;
        rows.resize_with(more, || Mutex::new(TableRow { generations: Generations::default(), thing: None }));
        let _ = chunk.set(rows.into_boxed_slice()); // under the lock, so once
        free.rows.extend((first..first + more).rev().map(|at| at as u32));
        free.made += more;
        Ok(())
    }

    fn row(&self, at: u32) -> Option<&Mutex<TableRow<T>>> {
        let at = at as usize + FIRST;
        let chunk = (at / FIRST).ilog2();
        self.chunks.get(chunk as usize)?.get()?.get(at - (FIRST << chunk))
    }

    /// Takes an empty row, for a thing that is about to be made.
    pub(crate) fn vacant(&self) -> CallResult<VacantRow<'_, T>> {
        let mut free = self.free();
        if free.rows.is_empty() {
            self.make_chunk(&mut free)?;
        }
        let at = free.rows.pop().ok_or(CallError::NO_MEMORY)?;
        Ok(VacantRow { table: self, at })
    }

    /// Puts a thing in. Where there is no memory it is dropped.
    pub(crate) fn insert(&self, thing: T) -> CallResult<Token> {
        self.vacant()?.fill(thing)
    }

    /// The row of a token, locked, with a thing in it.
    fn occupied(&self, token: Token) -> CallResult<MutexGuard<'_, TableRow<T>>> {
        let row = self.row(token.place()).filter(|_| token.is(self.kind)).ok_or(CallError::NO_HANDLE)?;
        let row = match (row.try_lock(), self.busy) {
            (Ok(row), _) => row,
            (Err(TryLockError::Poisoned(row)), _) => row.into_inner(),
            (Err(TryLockError::WouldBlock), Some(busy)) => return Err(CallError::fixed(libc::EBUSY, busy)),
            (Err(TryLockError::WouldBlock), None) => row.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if token.generation() == row.generations.latest() && row.thing.is_some() {
            return Ok(row);
        }
        Err(if row.generations.had(token.generation()) { CallError::STALE } else { CallError::NO_HANDLE })
    }

    /// Takes a thing out.
    pub(crate) fn remove(&self, token: Token) -> CallResult<T> {
        let thing = self.occupied(token)?.thing.take().ok_or(CallError::STALE)?;
        drop(VacantRow { table: self, at: token.place() });
        Ok(thing)
    }

    /// Changes a thing under its row's lock; `change` calls nothing foreign, except in tables that refuse.
    pub(crate) fn change<R>(
        &self,
        token: Token,
        change: impl FnOnce(&mut T) -> CallResult<R>,
    ) -> CallResult<R> {
        change(self.occupied(token)?.thing.as_mut().ok_or(CallError::STALE)?)
    }

    /// Looks at a thing under its row's lock; `look` calls nothing foreign, except in tables that refuse.
    pub(crate) fn with<R>(&self, token: Token, look: impl FnOnce(&T) -> R) -> CallResult<R> {
        self.change(token, |thing| Ok(look(thing)))
    }

    /// A clone of a thing.
    pub(crate) fn get(&self, token: Token) -> CallResult<T>
    where
        T: Clone,
    {
        self.with(token, T::clone)
    }
}

/// An empty row, which is free again when this is dropped.
pub(crate) struct VacantRow<'a, T> {
    table: &'a HandleTable<T>,
    at: u32,
}

impl<T> VacantRow<'_, T> {
    /// Puts the thing there.
    pub(crate) fn fill(self, thing: T) -> CallResult<Token> {
        let row = self.table.row(self.at).ok_or(CallError::NO_MEMORY)?;
        let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
        row.generations = row.generations.next();
        row.thing = Some(thing);
        let token = Token::new(self.table.kind, self.at, row.generations.latest());
        std::mem::forget(self);
        Ok(token)
    }
}

impl<T> Drop for VacantRow<'_, T> {
    fn drop(&mut self) {
        self.table.free().rows.push(self.at); // room for every row was reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_old_tokens_are_stale() {
        let table = HandleTable::new(HandleKind::PageRef, None);
        let first = table.insert("first").unwrap();
        assert_eq!(table.with(first, |thing| *thing).unwrap(), "first");
        assert_eq!(table.remove(first).unwrap(), "first");
        assert_eq!(table.remove(first).unwrap_err().report(), -libc::ESTALE);
        let second = table.insert("second").unwrap();
        assert_eq!(first.place(), second.place());
        assert_eq!(table.with(first, |_| ()).unwrap_err().report(), -libc::ESTALE);
        assert_eq!(table.with(second, |thing| *thing).unwrap(), "second");
    }

    #[test]
    fn a_token_turned_by_a_bit_is_not_its_neighbour() {
        let table = HandleTable::new(HandleKind::PageRef, None);
        let first = table.insert(1).unwrap();
        let second = table.insert(2).unwrap();
        let turned = Token::new(HandleKind::PageRef, second.place(), first.generation());
        assert_eq!(table.remove(turned).unwrap_err().report(), -libc::EINVAL);
        assert_eq!(table.remove(second).unwrap(), 2);
    }

    #[test]
    fn what_never_was_a_token_is_refused() {
        let table = HandleTable::new(HandleKind::PageRef, None);
        let token = table.insert(1).unwrap();
        let of_another_kind = Token::new(HandleKind::Arena, token.place(), token.generation());
        let of_the_future =
            Token::new(HandleKind::PageRef, token.place(), token.generation().wrapping_add(1));
        for bad in [Token(0), Token(u64::MAX), Token(0xdead_beef), of_another_kind, of_the_future] {
            assert_eq!(table.remove(bad).unwrap_err().report(), -libc::EINVAL, "{bad:?}");
        }
    }

    #[test]
    fn a_row_that_is_not_filled_is_taken_again() {
        let table = HandleTable::new(HandleKind::PageRef, None);
        let at = table.vacant().unwrap().at;
        let tokens = [1, 2].map(|thing| {
            let token = table.vacant().unwrap().fill(thing).unwrap();
            assert_eq!((token.place(), table.remove(token).unwrap()), (at, thing));
            token
        });
        assert_ne!(tokens[0], tokens[1]);
        let third = table.insert(3).unwrap();
        for stale in tokens {
            assert_eq!(table.change(stale, |_| Ok(())).unwrap_err().report(), -libc::ESTALE);
            assert_eq!(table.remove(stale).unwrap_err().report(), -libc::ESTALE);
        }
        assert_eq!(table.remove(third).unwrap(), 3);
    }

    #[test]
    fn rows_stay_where_they_are_when_the_table_grows() {
        let table = HandleTable::new(HandleKind::PageRef, None);
        let tokens: Vec<Token> = (0..10 * FIRST).map(|thing| table.insert(thing).unwrap()).collect();
        for (thing, &token) in tokens.iter().enumerate() {
            assert_eq!((token.place() as usize, table.get(token).unwrap()), (thing, thing));
        }
        assert!(table.row(PLACES - 1).is_none() && table.row(u32::MAX).is_none());
    }

    #[test]
    fn a_busy_row_refuses_or_waits() {
        let refusing = HandleTable::new(HandleKind::Skb, Some(c"busy"));
        let token = refusing.insert(1).unwrap();
        let inner = refusing.with(token, |_| refusing.get(token).unwrap_err().report()).unwrap();
        assert_eq!(inner, -libc::EBUSY);

        let waiting = HandleTable::new(HandleKind::PageRef, None);
        let token = waiting.insert(0).unwrap();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..1000 {
                        let more = |count: &mut i32| {
                            *count += 1;
                            Ok(())
                        };
                        waiting.change(token, more).unwrap();
                    }
                });
            }
        });
        assert_eq!(waiting.get(token).unwrap(), 4000);
    }
}
