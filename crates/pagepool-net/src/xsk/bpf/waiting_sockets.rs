//! Sockets that go into the map of another XDP program when they have buffers, and not before: that program
//! redirects to them from that moment on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool::Error;

/// Sockets, by their keys.
#[derive(Debug, Default)]
pub(super) struct WaitingSockets(Mutex<Vec<Socket>>);

#[derive(Debug)]
struct Socket {
    key: u32,
    /// Of its own, until the device takes the socket out of the map.
    fd: OwnedFd,
    in_map: bool,
}

impl WaitingSockets {
    fn lock(&self) -> MutexGuard<'_, Vec<Socket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one.
    pub(super) fn add(&self, key: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let fd = socket.try_clone_to_owned().map_err(|source| Error::System {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            remedy: "too many files are open: raise RLIMIT_NOFILE".into(),
            source,
        })?;
        self.lock().push(Socket { key, fd, in_map: false });
        Ok(())
    }

    /// Inserts those that are not in the map.
    pub(super) fn insert(
        &self,
        insert: impl Fn(u32, BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for socket in self.lock().iter_mut().filter(|socket| !socket.in_map) {
            insert(socket.key, socket.fd.as_fd())?;
            socket.in_map = true;
        }
        Ok(())
    }

    /// Removes all from the map; says whether there were any.
    pub(super) fn remove(&self, remove: impl Fn(u32, BorrowedFd<'_>)) -> bool {
        let mut all = self.lock();
        let there = all.iter_mut().filter(|socket| socket.in_map);
        there
            .map(|socket| {
                remove(socket.key, socket.fd.as_fd());
                socket.in_map = false;
            })
            .count()
            > 0
    }

    /// The device of this key closes its socket.
    pub(super) fn forget(&self, key: u32) {
        self.lock().retain(|socket| socket.key != key);
    }
}
