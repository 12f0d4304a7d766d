//! Seeds of random tests: equal in each run, unless others are requested.

use std::env;
use std::hash::{BuildHasher, RandomState};

/// The seed of a random test: the environment variable if set, else a new one if `PAGEPOOL_RANDOM_SEEDS` is
/// 1, else 1. Prints it as an assignment that repeats the run.
///
/// ```
/// use pagepool_testing::seed;
/// assert_eq!(seed("A_VARIABLE_THAT_NOBODY_SETS"), 1);
/// ```
pub fn seed(variable: &str) -> u64 {
    let given = env::var(variable).ok();
    let given = given.map(|seed| seed.parse().unwrap_or_else(|_| panic!("{variable}={seed}: no number")));
    let random = env::var_os("PAGEPOOL_RANDOM_SEEDS").is_some_and(|value| value == "1");
    let seed = given.unwrap_or_else(|| if random { RandomState::new().hash_one(variable) } else { 1 });
    println!("{variable}={seed}");
    seed
}
