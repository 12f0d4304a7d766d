//! A process for which `membarrier` is refused from the start: its fences are real ones, and every way to
//! wake an owner works as it does elsewhere.
#![allow(clippy::unwrap_used)]
// UNSAFETY: a filter of system calls is installed before `main`.
#![expect(unsafe_code)]

mod filter;
#[path = "wakeups.rs"]
mod wakeups;

use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagepool::{Bound, PageBuf, Pool, PoolParams, fences_are_free};
use pagepool_testing::PlainMemory;

/// Before `main`, so that every thread has the filter. Registering is allowed: who relies on that alone finds
/// out when the fence is due.
// SAFETY: the C library calls it once, on the one thread that there is.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = refuse;

static IS_REFUSED: AtomicBool = AtomicBool::new(false);

extern "C" fn refuse() {
    IS_REFUSED.store(filter::refuse_fence().is_ok(), Ordering::Relaxed);
}

/// A pool of one page, with one lane.
fn pool(wakeup: bool) -> Option<Bound> {
    if !IS_REFUSED.load(Ordering::Relaxed) {
        println!("SKIP: no filter of system calls");
        return None;
    }
    let params =
        PoolParams { wakeup, max_lanes: 1, lane_size: 2, ring_size: 2, chains: 1, ..Default::default() };
    let pool = Pool::new(params, PlainMemory::new(1, 0).unwrap()).unwrap().bind();
    assert!(!fences_are_free(), "the refusal was noticed when the first pool was made");
    Some(pool)
}

/// Rounds of a race. With a compiler fence for a returner some lose a page, or a wake-up.
const ROUNDS: u32 = 100_000;

/// The rounds, fewer on a busy machine.
fn rounds() -> impl Iterator<Item = u32> {
    let start = Instant::now();
    (0..ROUNDS).take_while(move |_| start.elapsed() < Duration::from_secs(4))
}

/// A thread that drops each buffer it is given, at about the moment that the giver goes on.
fn with_a_returner(work: impl FnOnce(&dyn Fn(PageBuf))) {
    let (given, ends) = (Mutex::new(None), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                drop(given.lock().unwrap().take());
            }
        });
        let _ends = AtEnd(&ends);
        work(&|buffer| *given.lock().unwrap() = Some(buffer));
    });
}

/// Ends the returner, also when a round fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn sleep(pool: &Bound) -> bool {
    let mut fd = libc::pollfd { fd: pool.wake_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives across the call.
    unsafe { libc::poll(&mut fd, 1, 60_000) == 1 }
}

#[test]
fn a_page_that_returns_while_its_owner_starves_wakes_it() {
    let Some(pool) = pool(true) else { return };
    with_a_returner(|give| {
        for round in rounds() {
            let page = loop {
                match pool.alloc_page() {
                    Some(page) => break page,
                    None => assert!(sleep(&pool), "round {round}: nobody woke the owner"),
                }
                pool.acknowledge_wake();
            };
            give(page);
        }
    });
}

#[test]
fn a_page_that_returns_while_its_pool_ends_is_not_lost() {
    with_a_returner(|give| {
        for round in rounds() {
            let Some(pool) = pool(false) else { return };
            give(pool.alloc_page().unwrap());
            let end = pool.destroy();
            assert!(end.wait(Duration::from_secs(60)), "round {round}: a page is lost: {}", end.report());
        }
    });
}
