//! Event counters, and sleeping until one of several descriptors can be read.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::socket::descriptor;

/// A new event counter at 0 that never blocks and does not survive `exec`.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers.
    let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: the call just made this descriptor, and nobody else has it.
    unsafe { descriptor(made) }
}

/// Adds one to an event counter, which wakes the threads that wait for it. A full counter has woken them
/// already.
pub(crate) fn signal(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes.
    let done = unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
    debug_assert!(done == 8 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock, "an eventfd");
}

/// Sets an event counter to 0.
pub(crate) fn take(fd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: the kernel writes eight bytes or none. Nothing to take is as good.
    let _ = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Descriptors to sleep on, of any number. Each must be open until the sleep is over.
#[derive(Debug, Default)]
pub(crate) struct Sleep(Vec<libc::pollfd>);

impl Sleep {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds one, or a place for none. Allocates only while there are more than there ever were.
    pub(crate) fn add(&mut self, fd: Option<BorrowedFd<'_>>) {
        self.0.push(entry(fd));
    }

    /// Sleeps until one of them can be read, at most `timeout`. Says whether it ended by itself: no, if a
    /// signal ended it.
    pub(crate) fn sleep(&mut self, timeout: Duration) -> bool {
        poll(&mut self.0, timeout)
    }

    /// Whether any of them could be read at the end of the sleep; no, if there was none.
    pub(crate) fn is_any_readable(&self) -> bool {
        self.0.iter().any(|polled| polled.revents != 0)
    }
}

/// Sleeps until one of the descriptors can be read, at most `timeout`; says of each whether it can. `None` if
/// a signal ended the sleep.
pub(crate) fn wait_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> Option<[bool; N]> {
    let mut polled = fds.map(entry);
    poll(&mut polled, timeout).then(|| polled.map(|polled| polled.revents != 0))
}

fn entry(fd: Option<BorrowedFd<'_>>) -> libc::pollfd {
    let fd = fd.map_or(-1, |fd| fd.as_raw_fd()); // the kernel leaves out negative ones
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Says whether it ended by itself: no, if a signal ended it.
fn poll(polled: &mut [libc::pollfd], timeout: Duration) -> bool {
    let limit = libc::timespec {
        tv_sec: i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).into(), // 68 years
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let (at, len) = (polled.as_mut_ptr(), polled.len() as libc::nfds_t);
    // SAFETY: the kernel reads and writes that many entries, and reads the time, which live as long as this
    // call. A descriptor that is not open any more is found to be so.
    let ready = unsafe { libc::ppoll(at, len, &raw const limit, std::ptr::null()) };
    ready >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn waits_for_either_of_two() {
        let (one, two) = (eventfd().unwrap(), eventfd().unwrap());
        let fds = || [Some(one.as_fd()), None, Some(two.as_fd())];
        assert_eq!(wait_readable(fds(), Duration::from_millis(1)), Some([false; 3]));
        signal(two.as_fd());
        assert_eq!(wait_readable(fds(), Duration::from_secs(60)), Some([false, false, true]));
        take(two.as_fd());
        assert_eq!(wait_readable(fds(), Duration::ZERO), Some([false; 3]));
    }
}
