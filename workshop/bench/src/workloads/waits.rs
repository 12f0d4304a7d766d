//! Pages that wait for a user who only reports whether they are still in use.

use crate::measure::counted::{Moves, Rule};
use crate::measure::workload::{Ready, Workload};
use crate::workloads::pools;
use pagepool::{Bound, PoolParams, UseCounts};
use pagepool_cli::report::error_chain;

/// Pages in a burst, and in a refill.
const BURST: usize = 64;
/// More than the pool's cache holds beyond a burst.
const WAITING: usize = 1024;

/// Pages are queued in bursts; the refill that needs them finds them done.
pub const TABLE: &[Workload] = &[Workload::new("waitqueue", waitqueue)
    .about("defer a page that a reader uses, end the use; the refill polls, and reuses the page")
    .batch(BURST)
    .rules(&[
        Rule(&["alloc_fast", "alloc_refill"], Moves::Each),
        Rule(&["alloc_refill"], Moves::Share(1, BURST as u64)),
        Rule(&["recycle_cached"], Moves::Each),
    ])];

fn waitqueue() -> Result<Ready, String> {
    let pool = pools::bound(PoolParams { defer_capacity: WAITING, ..pools::packets() })?;
    let users = UseCounts::new(WAITING);
    let user = pool.deferred_user(users.clone()).map_err(|error| error_chain(&error))?;
    let mut next = 0;
    let run = move |pool: &Bound, n| {
        for _ in 0..n / BURST {
            let cookies = (next..next + BURST as u64).map(|cookie| cookie % WAITING as u64);
            next += BURST as u64;
            for cookie in cookies.clone() {
                users.take(cookie);
                pool.defer(&user, pools::page(pool), cookie).expect("there is room for a burst");
            }
            cookies.for_each(|cookie| users.put(cookie));
        }
    };
    Ok(pools::one_core_over(pool, run))
}
