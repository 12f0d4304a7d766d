//! Huge pages of 2 MiB, which all tests on a machine share.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

/// How many the system has. Tests lock this file.
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Makes tests that change the number of huge pages wait. Keep the result while you use huge pages. `None` if
/// the system has none.
pub fn share_huge_pages() -> Option<File> {
    let file = File::open(RESERVED).ok()?;
    flock(&file, FlockOperation::LockShared).ok()?;
    Some(file)
}
