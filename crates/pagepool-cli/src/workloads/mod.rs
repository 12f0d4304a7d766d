//! The tables of workloads, in the order in which they are printed.

mod yardsticks;

use crate::workload::Workload;

/// Every workload of the bench.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    [yardsticks::TABLE].into_iter().flatten()
}
