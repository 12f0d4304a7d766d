//! A network namespace that lives no longer than this process.
//!
//! It has no name and no file: only a thread of this process, and what was opened in it, refer to it. When
//! the process exits or is killed, the kernel removes the namespace and its devices.
//!
//! Any thread may call. Closures run on the namespace's own thread, one after another; long work belongs on a
//! thread of [`Namespace::spawn`].

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use crate::error::LinkError;
use crate::ethtool::Ethtool;
use crate::netlink::Netlink;
use crate::sys;

type Job = Box<dyn FnOnce() + Send>;

const OWN: &str = "/proc/thread-self/ns/net";

/// Without IPv6 the links are silent. A TCP connection without a process times out after a second; otherwise
/// it would keep the namespace alive for minutes.
const SETTINGS: [(&str, &str); 3] = [
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/tcp_orphan_retries", "1"),
];

/// A network namespace without a name, held by a thread of this process.
///
/// Dropping it ends its thread. The namespace itself ends after the last socket opened in it and the last
/// thread started in it; the kernel removes it and its devices some time later.
///
/// ```
/// use pagepool_link::Namespace;
/// match Namespace::new("lab") {
///     Ok(lab) => {
///         let links = lab.netlink()?.links()?;
///         assert_eq!(links.len(), 1, "a new namespace has a loopback, which is down");
///         assert!(!links[0].is_up);
///     }
///     Err(error) => assert!(error.is_permission(), "{error}"),
/// }
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// For requests that move devices into the namespace.
    handle: File,
    work: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Creates a namespace. Its thread gets the name, of which tools show the first 15 bytes.
    ///
    /// IPv6 is off: links are silent until a program sends. TCP connections whose process is gone end after a
    /// second, because they would keep the namespace alive.
    pub fn new(name: &str) -> Result<Self, LinkError> {
        let (work, todo) = mpsc::channel::<Job>();
        let (made, handle) = mpsc::channel();
        let body = move || {
            let _ = made.send(leave()); // `new` waits for it
            todo.into_iter().for_each(|work| work());
        };
        let thread = Builder::new().name(name.into()).spawn(body);
        let thread = thread.map_err(|error| LinkError::call("clone", "a thread for a namespace", error))?;
        let handle = handle.recv().expect("the thread sends before anything else")?;
        Ok(Self { name: name.into(), handle, work: Some(work), thread: Some(thread) })
    }

    /// Runs a closure in the namespace, and returns its result. Panics if the closure panicked.
    ///
    /// Sockets opened there stay in the namespace wherever they are used, and keep it alive.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.is_here() {
            return work();
        }
        let (done, result) = mpsc::channel();
        let work = Box::new(move || {
            let _ = done.send(catch_unwind(AssertUnwindSafe(work))); // `run` waits for it
        });
        let sent = self.work.as_ref().is_some_and(|queue| queue.send(work).is_ok());
        debug_assert!(sent, "the thread takes work until the value is dropped");
        let result =
            result.recv().expect("the thread takes work until the value is dropped, and catches panics");
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Starts a thread in the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, LinkError> {
        let builder = Builder::new().name(name.into());
        // A new thread inherits the namespace of the thread that starts it.
        let started = self.run(move || builder.spawn(work));
        started
            .map_err(|error| LinkError::call("clone", format!("a thread in namespace {}", self.name), error))
    }

    /// Opens a netlink client for its links.
    pub fn netlink(&self) -> Result<Netlink, LinkError> {
        self.run(Netlink::open)
    }

    /// Opens an ethtool client for the drivers of its links.
    pub fn ethtool(&self) -> Result<Ethtool, LinkError> {
        self.run(Ethtool::open)
    }

    fn is_here(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }
}

impl AsFd for Namespace {
    /// For requests that name a namespace, such as moving a device.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for Namespace {
    /// Waits for the closures that run in it. Threads of [`Namespace::spawn`] continue.
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "work is run under catch_unwind, and `run` borrows the value");
        }
    }
}

/// Moves this thread into a new namespace. Returns a handle to it.
fn leave() -> Result<File, LinkError> {
    let about = "a network namespace of our own";
    sys::namespace::unshare_network().map_err(|error| LinkError::call("unshare", about, error))?;
    let handle = File::open(OWN).map_err(|error| LinkError::call("open", OWN, error))?;
    for (setting, value) in SETTINGS {
        // A kernel without the protocol has no such file; without the setting the namespace only ends later.
        let _ = std::fs::write(format!("/proc/sys/net/{setting}"), value);
    }
    Ok(handle)
}
