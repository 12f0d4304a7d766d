//! Advisory file locks (`flock`), which end with their descriptor.

// UNSAFETY: a system call; its wrapper says what makes it sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two tries.
const NAP: Duration = Duration::from_millis(5);

/// Locks an open file exclusively for this descriptor; `TimedOut` if another one holds the lock for `limit`.
pub(crate) fn lock(file: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let start = Instant::now();
    loop {
        // SAFETY: the call takes two integers.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error if error.kind() == io::ErrorKind::WouldBlock && start.elapsed() < limit => {
                thread::sleep(NAP);
            }
            error if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            error => return Err(error),
        }
    }
}
