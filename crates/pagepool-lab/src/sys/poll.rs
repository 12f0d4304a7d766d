//! Sleeping until a descriptor can be read.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Sleeps until the descriptor can be read, at most `limit`; says whether it can. May return early, after a
/// signal.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
}
