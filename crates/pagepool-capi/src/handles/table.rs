//! A table of things that C holds by token, for all kinds but pools and buffers.
//!
//! Who    any thread; one short lock, under which nothing foreign runs: things are put in made, and taken out
//!        to be dropped.
//! Cost   a lock and an index. A place is used again with its next generation.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{CallError, CallResult};
use crate::handles::token::{Generations, HandleKind, PLACES, Token};

pub(crate) struct HandleTable<T> {
    kind: HandleKind,
    rows: Mutex<TableRows<T>>,
}

struct TableRows<T> {
    rows: Vec<TableRow<T>>,
    /// TableRows that are empty.
    free: Vec<u32>,
}

struct TableRow<T> {
    generations: Generations,
    thing: Option<T>,
}

impl<T> HandleTable<T> {
    pub(crate) const fn new(kind: HandleKind) -> Self {
        Self { kind, rows: Mutex::new(TableRows { rows: Vec::new(), free: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, TableRows<T>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a thing in. Where there is no memory it is dropped.
    pub(crate) fn insert(&self, thing: T) -> CallResult<Token> {
        let mut table = self.lock();
        let TableRows { rows, free } = &mut *table;
        if free.is_empty() {
            let at = u32::try_from(rows.len()).ok().filter(|&at| at < PLACES).ok_or(CallError::no_memory())?;
            rows.try_reserve(1).map_err(|_| CallError::no_memory())?;
            free.try_reserve(rows.len() + 1).map_err(|_| CallError::no_memory())?;
            rows.push(TableRow { generations: Generations::default(), thing: None });
            free.push(at);
        }
        let at = free.pop().ok_or(CallError::no_memory())?;
        let row = rows.get_mut(at as usize).ok_or(CallError::no_memory())?;
        row.generations = row.generations.next();
        row.thing = Some(thing);
        Ok(Token::new(self.kind, at, row.generations.latest()))
    }

    /// Takes a thing out.
    pub(crate) fn remove(&self, token: Token) -> CallResult<T> {
        let mut table = self.lock();
        let TableRows { rows, free } = &mut *table;
        let row = Self::row(self.kind, rows, token)?;
        let thing = row.thing.take().ok_or(CallError::stale())?;
        free.push(token.place()); // room for every row was reserved
        Ok(thing)
    }

    /// Looks at a thing under the lock; `look` calls nothing foreign.
    pub(crate) fn with<R>(&self, token: Token, look: impl FnOnce(&T) -> R) -> CallResult<R> {
        let mut table = self.lock();
        let row = Self::row(self.kind, &mut table.rows, token)?;
        row.thing.as_ref().map(look).ok_or(CallError::stale())
    }

    fn row(kind: HandleKind, rows: &mut [TableRow<T>], token: Token) -> CallResult<&mut TableRow<T>> {
        let row =
            rows.get_mut(token.place() as usize).filter(|_| token.is(kind)).ok_or(CallError::no_handle())?;
        if token.generation() == row.generations.latest() && row.thing.is_some() {
            return Ok(row);
        }
        Err(if row.generations.had(token.generation()) { CallError::stale() } else { CallError::no_handle() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_old_tokens_are_stale() {
        let table = HandleTable::new(HandleKind::PageRef);
        let first = table.insert("first").unwrap();
        assert_eq!(table.with(first, |thing| *thing).unwrap(), "first");
        assert_eq!(table.remove(first).unwrap(), "first");
        assert_eq!(table.remove(first).unwrap_err().errno(), libc::ESTALE);
        let second = table.insert("second").unwrap();
        assert_eq!(first.place(), second.place());
        assert_eq!(table.with(first, |_| ()).unwrap_err().errno(), libc::ESTALE);
        assert_eq!(table.with(second, |thing| *thing).unwrap(), "second");
    }

    #[test]
    fn a_token_turned_by_a_bit_is_not_its_neighbour() {
        let table = HandleTable::new(HandleKind::PageRef);
        let first = table.insert(1).unwrap();
        let second = table.insert(2).unwrap();
        let turned = Token::new(HandleKind::PageRef, second.place(), first.generation());
        assert_eq!(table.remove(turned).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(table.remove(second).unwrap(), 2);
    }

    #[test]
    fn what_never_was_a_token_is_refused() {
        let table = HandleTable::new(HandleKind::PageRef);
        let token = table.insert(1).unwrap();
        let of_another_kind = Token::new(HandleKind::Arena, token.place(), token.generation());
        let of_the_future =
            Token::new(HandleKind::PageRef, token.place(), token.generation().wrapping_add(1));
        for bad in [Token(0), Token(u64::MAX), Token(0xdead_beef), of_another_kind, of_the_future] {
            assert_eq!(table.remove(bad).unwrap_err().errno(), libc::EINVAL, "{bad:?}");
        }
    }
}
