//! A table of objects that C holds by token, for all kinds except pools and buffers.
//!
//! What   rows in chunks, each twice as large as the one before. Rows never move and are never freed, only
//!        reused with their next generation. Each row has its own lock, so that threads with different
//!        objects do not contend.
//! Who    any thread. Objects are made before they are put in, and dropped after they were taken out, so no
//!        callback runs under a lock that calls wait for. A call on a packet may run one, when a buffer is
//!        returned. So it does not wait for a locked row but is refused, and the callback may use all packets
//!        except that one.
//! Cost   the row's lock; to insert or remove also a compare-and-swap, for the list of empty rows.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::error::{CallError, CallResult};
use crate::handles::token::{Generations, HandleKind, PLACES, Token};

const FIRST: usize = 64;
/// With these chunks a table has almost as many rows as a token can name.
const CHUNKS: usize = (PLACES as usize / FIRST).ilog2() as usize;

pub(crate) struct HandleTable<T> {
    kind: HandleKind,
    /// The error text for a call that finds a row locked; without a text the call waits.
    busy: Option<&'static CStr>,
    chunks: [OnceLock<Box<[TableRow<T>]>>; CHUNKS],
    made: Mutex<usize>,
    /// The list of empty rows. Lower half: the first one, as in `next`. Upper half: how many were taken, so
    /// that a thread notices if the first one was taken and pushed again after it read it.
    empty: AtomicU64,
}

struct TableRow<T> {
    /// In an empty row the next empty row's number plus one, or 0.
    next: AtomicU32,
    content: Mutex<RowContent<T>>,
}

struct RowContent<T> {
    generations: Generations,
    thing: Option<T>,
}

impl<T> HandleTable<T> {
    pub(crate) const fn new(kind: HandleKind, busy: Option<&'static CStr>) -> Self {
        let chunks = [const { OnceLock::new() }; CHUNKS];
        Self { kind, busy, chunks, made: Mutex::new(0), empty: AtomicU64::new(0) }
    }

    #[cold]
    fn make_chunk(&self) -> CallResult<()> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if self.empty.load(Relaxed) as u32 != 0 {
            return Ok(()); // another thread made one before this lock
        }
        let first = *made;
        let more = first + FIRST; // 64, 128, 256, ...
        let chunk = self.chunks.get((more / FIRST).ilog2() as usize).ok_or(CallError::NO_MEMORY)?;
        let mut rows = Vec::new();
        rows.try_reserve_exact(more)?;
        rows.extend((first..first + more).map(|at| TableRow {
            next: AtomicU32::new(at as u32 + 2),
            content: Mutex::new(RowContent { generations: Generations::default(), thing: None }),
        }));
        *made += more;
        if let Some(last) = chunk.get_or_init(|| rows.into_boxed_slice()).last() {
            self.push_empty(first as u32, last);
        }
        Ok(())
    }

    #[inline(always)]
    fn row(&self, at: u32) -> Option<&TableRow<T>> {
        let at = at as usize + FIRST;
        let chunk = (at / FIRST).ilog2();
        self.chunks.get(chunk as usize)?.get()?.get(at - (FIRST << chunk))
    }

    /// Puts rows into the list of empty ones: `first` and its successors up to `last`.
    #[inline]
    fn push_empty(&self, first: u32, last: &TableRow<T>) {
        let mut head = self.empty.load(Relaxed);
        loop {
            last.next.store(head as u32, Relaxed);
            let pushed = head >> 32 << 32 | u64::from(first + 1);
            match self.empty.compare_exchange_weak(head, pushed, Release, Relaxed) {
                Ok(_) => return, // pairs with vacant()
                Err(now) => head = now,
            }
        }
    }

    /// Takes an empty row, for an object that is about to be made.
    #[inline]
    pub(crate) fn vacant(&self) -> CallResult<VacantRow<'_, T>> {
        let mut head = self.empty.load(Acquire); // pairs with push_empty()
        loop {
            let Some(at) = (head as u32).checked_sub(1) else {
                self.make_chunk()?;
                head = self.empty.load(Acquire);
                continue;
            };
            let row = self.row(at).ok_or(CallError::NO_MEMORY)?;
            let taken = ((head >> 32) + 1) << 32 | u64::from(row.next.load(Relaxed));
            match self.empty.compare_exchange_weak(head, taken, Acquire, Acquire) {
                Ok(_) => return Ok(VacantRow { table: self, row, at }),
                Err(now) => head = now,
            }
        }
    }

    /// Inserts what `make` makes; without memory for a row `make` is not called.
    #[inline]
    pub(crate) fn insert_made(&self, make: impl FnOnce() -> CallResult<T>) -> CallResult<Token> {
        let row = self.vacant()?;
        Ok(row.fill(make()?))
    }

    /// Inserts an object; without memory for a row it is dropped.
    pub(crate) fn insert(&self, thing: T) -> CallResult<Token> {
        Ok(self.vacant()?.fill(thing))
    }

    /// The row that a token names.
    #[inline(always)]
    fn row_of(&self, token: Token) -> CallResult<&TableRow<T>> {
        if !token.is(self.kind) {
            return Err(CallError::NO_HANDLE);
        }
        self.row(token.place()).ok_or(CallError::NO_HANDLE)
    }

    /// Locks the row of a token, if the row has the object of that token.
    #[inline(always)]
    fn occupied<'a>(&self, row: &'a TableRow<T>, token: Token) -> CallResult<MutexGuard<'a, RowContent<T>>> {
        let content = row.content.try_lock().or_else(|failed| self.lock_after(row, failed))?;
        if token.generation() == content.generations.latest() && content.thing.is_some() {
            return Ok(content);
        }
        Err(missing(content.generations, token))
    }

    /// Locks a row that was not free, or in which a call panicked.
    #[cold]
    fn lock_after<'a>(
        &self,
        row: &'a TableRow<T>,
        failed: TryLockError<MutexGuard<'a, RowContent<T>>>,
    ) -> CallResult<MutexGuard<'a, RowContent<T>>> {
        match (failed, self.busy) {
            (TryLockError::Poisoned(content), _) => Ok(content.into_inner()),
            (TryLockError::WouldBlock, Some(busy)) => Err(CallError::fixed(libc::EBUSY, busy)),
            (TryLockError::WouldBlock, None) => {
                Ok(row.content.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    pub(crate) fn remove(&self, token: Token) -> CallResult<T> {
        self.remove_into(token, Ok)
    }

    /// Removes an object and makes another of it under its row's lock. If `make` returns the object, it
    /// stays. `make` runs no callback.
    pub(crate) fn remove_into<R>(
        &self,
        token: Token,
        make: impl FnOnce(T) -> Result<R, (T, CallError)>,
    ) -> CallResult<R> {
        let row = self.row_of(token)?;
        let mut content = self.occupied(row, token)?;
        match make(content.thing.take().ok_or(CallError::STALE)?) {
            Ok(made) => {
                drop(content);
                self.push_empty(token.place(), row);
                Ok(made)
            }
            Err((thing, error)) => {
                content.thing = Some(thing);
                Err(error)
            }
        }
    }

    /// Changes an object under its row's lock; `change` runs no callback, except in tables that refuse.
    #[inline]
    pub(crate) fn change<R>(
        &self,
        token: Token,
        change: impl FnOnce(&mut T) -> CallResult<R>,
    ) -> CallResult<R> {
        let row = self.row_of(token)?;
        change(self.occupied(row, token)?.thing.as_mut().ok_or(CallError::STALE)?)
    }

    /// Reads an object under its row's lock; `look` runs no callback, except in tables that refuse.
    #[inline]
    pub(crate) fn with<R>(&self, token: Token, look: impl FnOnce(&T) -> R) -> CallResult<R> {
        self.change(token, |thing| Ok(look(thing)))
    }

    #[inline]
    pub(crate) fn get(&self, token: Token) -> CallResult<T>
    where
        T: Clone,
    {
        self.with(token, T::clone)
    }
}

#[cold]
fn missing(generations: Generations, token: Token) -> CallError {
    if generations.had(token.generation()) { CallError::STALE } else { CallError::NO_HANDLE }
}

/// An empty row. Dropping it puts it into the list again.
pub(crate) struct VacantRow<'a, T> {
    table: &'a HandleTable<T>,
    row: &'a TableRow<T>,
    at: u32,
}

impl<T> VacantRow<'_, T> {
    #[inline]
    pub(crate) fn fill(self, thing: T) -> Token {
        let mut content = self.row.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.generations = content.generations.next();
        content.thing = Some(thing);
        let token = Token::new(self.table.kind, self.at, content.generations.latest());
        std::mem::forget(self);
        token
    }
}

impl<T> Drop for VacantRow<'_, T> {
    fn drop(&mut self) {
        self.table.push_empty(self.at, self.row);
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
            let token = table.vacant().unwrap().fill(thing);
            assert_eq!((token.place(), table.remove(token).unwrap()), (at, thing));
            token
        });
        assert_ne!(tokens[0], tokens[1]);
        assert!(table.insert_made(|| Err(CallError::NO_MEMORY)).is_err());
        let third = table.insert_made(|| Ok(3)).unwrap();
        assert_eq!(third.place(), at);
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
    fn threads_never_get_the_same_row() {
        let table = HandleTable::new(HandleKind::PageRef, None);
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let table = &table;
                threads.spawn(move || {
                    for round in 0..2000 {
                        let tokens = [0, 1, 2].map(|at| table.insert((thread, round, at)).unwrap());
                        drop(table.vacant().unwrap());
                        for (at, token) in tokens.into_iter().enumerate() {
                            assert_eq!(table.remove(token).unwrap(), (thread, round, at));
                        }
                    }
                });
            }
        });
        assert!(*table.made.lock().unwrap() == FIRST, "rows are used again");
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
