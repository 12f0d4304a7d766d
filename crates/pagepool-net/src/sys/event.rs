//! Event counters, and sleeping until one of several descriptors is readable.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) use pagepool_link::sys::poll::wait_readable;
use pagepool_link::sys::poll::{entry, poll};

use super::socket::descriptor;

/// A new event counter at 0 that never blocks and does not survive `exec`.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers.
    let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: the call just made this descriptor, and nothing else has it.
    unsafe { descriptor(made) }
}

/// Adds one to an event counter, and wakes the threads that wait for it. A full counter has already woken
/// them.
pub(crate) fn signal(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes.
    let done = unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
    debug_assert!(done == 8 || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock, "an eventfd");
}

/// Sets an event counter to 0.
pub(crate) fn take(fd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: the kernel writes eight bytes or none.
    let _ = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Descriptors to sleep on. Each must stay open until the sleep is over.
#[derive(Debug, Default)]
pub(crate) struct Sleep(Vec<libc::pollfd>);

impl Sleep {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a descriptor, or none. Allocates only beyond the largest number so far.
    pub(crate) fn add(&mut self, fd: Option<BorrowedFd<'_>>) {
        self.0.push(entry(fd));
    }

    /// Sleeps until a descriptor is readable, at most `timeout`. False if a signal ended the sleep.
    pub(crate) fn sleep(&mut self, timeout: Duration) -> bool {
        poll(&mut self.0, timeout)
    }

    /// Whether a descriptor was readable at the end of the sleep.
    pub(crate) fn is_any_readable(&self) -> bool {
        self.0.iter().any(|polled| polled.revents != 0)
    }
}

/// An epoll set: one descriptor that is readable once any of many is.
#[derive(Debug)]
pub(crate) struct SleepSet(OwnedFd);

impl SleepSet {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes an integer.
        let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        // SAFETY: the call just made this descriptor, and nothing else has it.
        Ok(Self(unsafe { descriptor(made) }?))
    }

    /// Makes the set readable once one of these is. A descriptor of an earlier call makes it readable at most
    /// once more, and is forgotten when it is closed.
    pub(crate) fn watch(&self, sleep: &Sleep) -> io::Result<()> {
        self.take();
        sleep.0.iter().filter(|polled| polled.fd >= 0).try_for_each(|polled| {
            // First the common case: it was in the set at this thread's last sleep.
            match self.control(libc::EPOLL_CTL_MOD, polled.fd) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    self.control(libc::EPOLL_CTL_ADD, polled.fd)
                }
                done => done,
            }
        })
    }

    /// Reports one descriptor, once.
    fn control(&self, what: libc::c_int, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, u64: 0 };
        // SAFETY: the kernel reads the event, and refuses a descriptor that is not open.
        let done = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes all reports, which do not recur before the next `watch`.
    fn take(&self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // Each call takes other descriptors.
        loop {
            let (at, most) = (events.as_mut_ptr(), events.len() as libc::c_int);
            // SAFETY: the kernel writes at most that many events.
            let taken = unsafe { libc::epoll_wait(self.0.as_raw_fd(), at, most, 0) };
            if taken < most {
                return; // also -1: a signal came, and the next sleep ends at once
            }
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_set_reports_what_it_watches_and_the_rest_once_at_most() {
        let (set, one, two) = (SleepSet::new().unwrap(), eventfd().unwrap(), eventfd().unwrap());
        let watch = |fds: &[&OwnedFd]| {
            let mut sleep = Sleep::default();
            fds.iter().for_each(|fd| sleep.add(Some(fd.as_fd())));
            sleep.add(None);
            set.watch(&sleep).unwrap();
        };
        let readable = || wait_readable([Some(set.fd())], Duration::ZERO) == Some([true]);
        watch(&[&one, &two]);
        assert!(!readable());
        signal(two.as_fd());
        assert!(readable());
        watch(&[&one, &two]);
        assert!(readable(), "nothing took the signal");
        watch(&[&one]); // `two` is still readable
        assert!(!readable(), "it is not watched any more");
        signal(one.as_fd());
        assert!(readable());
        take(one.as_fd());
        watch(&[&one]);
        assert!(!readable());
        drop(one);
        let three = eventfd().unwrap(); // with the number of `one`
        signal(three.as_fd());
        watch(&[&three]);
        assert!(readable());
    }
}
