//! Where the inline functions of `pagepool.h` keep the pool that a thread used last and owns.
//!
//! What   a program, and each shared object of it, has one such place per thread, in thread-local memory. The
//!        inline functions write it after they checked the pool's owner, and trust it from then on, which
//!        saves the check in each call. So it must change before the thread stops being the owner.
//! Who    a thread registers its own places, and clears a pool from them: only the owner's thread unbinds.
//! Life   such memory stays mapped as long as its thread: glibc keeps it with the thread (header:
//!        initial-exec), musl unloads nothing. If a shared object is unloaded, another one may get the
//!        memory; a value that is no pool's row is left alone.
//! Limit  a thread registers [`PLACES`] of them in its life. A place that is not registered keeps no pool.

// UNSAFETY: places are read and written by address.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ptr::null_mut;

use crate::handles::view::{NO_POOL, PoolView};

/// Limit of programs and shared objects whose inline functions one thread uses.
const PLACES: usize = 16;

type RowPlace = *mut *const PoolView;

thread_local! {
    /// Has no destructor, so it is usable until the thread ends.
    static REGISTERED: [Cell<RowPlace>; PLACES] = const { [const { Cell::new(null_mut()) }; PLACES] };
}

/// Registers a place of the calling thread; returns whether it is registered.
pub(crate) fn register(place: RowPlace) -> bool {
    REGISTERED.with(|registered| {
        let free = registered.iter().find(|one| one.get() == place || one.get().is_null());
        free.inspect(|free| free.set(place)).is_some()
    })
}

/// Clears a pool from all places of the calling thread, which stops being its owner.
pub(crate) fn clear(view: &PoolView) {
    REGISTERED.with(|registered| {
        for place in registered.iter().map(Cell::get).take_while(|place| !place.is_null()) {
            // SAFETY: thread-local memory of this thread, which stays mapped as long as the thread.
            if std::ptr::eq(unsafe { place.read() }, view) {
                // SAFETY: it holds the address of a row, so it is such a place.
                unsafe { place.write(&raw const NO_POOL) };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::view::VIEWS;

    #[test]
    fn a_thread_removes_a_pool_from_all_places_that_it_noted() {
        let mut here = [&raw const VIEWS[7]; PLACES + 1];
        here[3] = &raw const VIEWS[8];
        let places: Vec<RowPlace> = here.iter_mut().map(|place| &raw mut *place).collect();
        for _ in 0..2 {
            assert!(places[..PLACES].iter().all(|&place| register(place)), "all, and each again");
        }
        assert!(!register(places[PLACES]), "one more than there is room for");
        clear(&VIEWS[7]);
        REGISTERED.with(|registered| registered.iter().for_each(|place| place.set(null_mut())));
        let kept = |at: usize| at == 3 || at == PLACES;
        for (at, row) in here.into_iter().enumerate() {
            assert_eq!(std::ptr::eq(row, &raw const NO_POOL), !kept(at), "place {at}");
        }
    }
}
