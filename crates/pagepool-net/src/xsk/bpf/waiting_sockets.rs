//! Sockets that enter another XDP program's map only when they have buffers: it redirects to them at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool::Error;

use crate::sys::remedy::not_copied;

#[derive(Debug, Default)]
pub(super) struct WaitingSockets(Mutex<Vec<Socket>>);

#[derive(Debug)]
struct Socket {
    key: u32,
    /// Our own descriptor, until the device removes the socket from the map.
    fd: OwnedFd,
    in_map: bool,
}

impl WaitingSockets {
    fn lock(&self) -> MutexGuard<'_, Vec<Socket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a socket. A key has one.
    pub(super) fn add(&self, key: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let fd = socket.try_clone_to_owned().map_err(not_copied)?;
        let mut all = self.lock();
        if all.iter().any(|socket| socket.key == key) {
            let what = format!(
                "key {key} of the map has a socket of this process already: give each device its own \
                 map_key, which the program must use"
            );
            return Err(Error::Busy { what });
        }
        all.push(Socket { key, fd, in_map: false });
        Ok(())
    }

    /// Inserts the sockets that are not in the map.
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

    /// Removes all from the map. Returns whether there were any.
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

    /// Forgets this key's socket, which is being closed. Returns whether it was in the map, if there is one.
    pub(super) fn forget(&self, key: u32) -> Option<bool> {
        let mut all = self.lock();
        let at = all.iter().position(|socket| socket.key == key)?;
        Some(all.swap_remove(at).in_map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_says_whether_it_is_in_the_map() {
        let waiting = WaitingSockets::default();
        let fd = std::fs::File::open("/dev/null").unwrap();
        [3, 4].into_iter().for_each(|key| waiting.add(key, fd.as_fd()).unwrap());
        let twice = waiting.add(3, fd.as_fd()).unwrap_err().to_string();
        assert!(twice.contains("key 3 of the map has a socket"), "{twice}");
        waiting.insert(|_, _| Ok(())).unwrap();
        assert_eq!((waiting.forget(3), waiting.forget(3)), (Some(true), None));
        waiting.remove(|_, _| ());
        assert_eq!(waiting.forget(4), Some(false), "it was stopped");
        waiting.add(4, fd.as_fd()).expect("the key is free again");
        assert_eq!(waiting.forget(4), Some(false), "it was never started");
    }
}
