//! Sleeps until one of several descriptors is readable.

// UNSAFETY: a system call; its wrapper says what makes it sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sleeps until a descriptor is readable, at most `timeout`. Returns which are; `None` if a signal ended the
/// sleep.
pub fn wait_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> Option<[bool; N]> {
    let mut polled = fds.map(entry);
    poll(&mut polled, timeout).then(|| polled.map(|polled| polled.revents != 0))
}

/// Whether a descriptor is readable now, and whether what it belongs to is gone. Does not sleep.
pub fn look(fd: BorrowedFd<'_>) -> (bool, bool) {
    let mut polled = [entry(Some(fd))];
    poll(&mut polled, Duration::ZERO);
    let is = |event| polled[0].revents & event != 0;
    (is(libc::POLLIN), is(libc::POLLERR))
}

/// An entry for a descriptor, or one that is never readable.
#[inline]
pub fn entry(fd: Option<BorrowedFd<'_>>) -> libc::pollfd {
    let fd = fd.map_or(-1, |fd| fd.as_raw_fd()); // the kernel ignores negative ones
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Sleeps until an entry is readable, at most `timeout`. False if a signal ended the sleep.
#[inline]
pub fn poll(polled: &mut [libc::pollfd], timeout: Duration) -> bool {
    let limit = libc::timespec {
        tv_sec: i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).into(), // 68 years
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let (at, len) = (polled.as_mut_ptr(), polled.len() as libc::nfds_t);
    // SAFETY: the kernel reads and writes that many entries, and reads the time; both outlive the call. It
    // reports descriptors that are not open.
    let ready = unsafe { libc::ppoll(at, len, &raw const limit, std::ptr::null()) };
    ready >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn waits_for_either_of_two() {
        let (one, mut there) = UnixStream::pair().unwrap();
        let (two, _other) = UnixStream::pair().unwrap();
        let fds = || [Some(two.as_fd()), None, Some(one.as_fd())];
        assert_eq!(wait_readable(fds(), Duration::from_millis(1)), Some([false; 3]));
        there.write_all(b"x").unwrap();
        assert_eq!(wait_readable(fds(), Duration::from_secs(60)), Some([false, false, true]));
    }
}
