//! Sleeps until a descriptor is readable.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Sleeps at most `limit` until the descriptor is readable. Returns whether it is. A signal may end the sleep
/// early.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
}
