//! A network namespace that lives no longer than this process.
//!
//! It has no name and no entry in the file system: a thread of ours is in it, and nothing else refers to it but what was
//! made in it. So when the process ends, however it ends, the kernel removes the namespace and the devices in it.
//!
//! Who    any thread may ask; what is asked for runs on the namespace's own thread, one thing after the other. What takes
//!        long belongs on a thread of [`Namespace::spawn`], which is in the namespace too.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use pagepool_net::link::{Ethtool, NetError, Netlink};

use crate::sys;

type Job = Box<dyn FnOnce() + Send>;

/// Where a thread finds its own namespace.
const OWN: &str = "/proc/thread-self/ns/net";

/// Settings of every namespace: links are silent until somebody sends; and a TCP connection that nobody has open any more
/// gives up after a second, not after minutes, during which it would keep the namespace.
const SETTINGS: [(&str, &str); 3] = [
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/tcp_orphan_retries", "1"),
];

/// An anonymous network namespace.
///
/// Dropping it ends its thread. The namespace itself ends when the last socket and the last thread that were made in it
/// have ended too; the kernel removes it and its devices a little later, on its own time.
///
/// ```
/// use pagepool_lab::Namespace;
/// match Namespace::new("lab") {
///     Ok(lab) => {
///         let links = lab.netlink()?.links()?;
///         assert_eq!(links.len(), 1, "a new namespace has a loopback, which is down");
///         assert!(!links[0].is_up);
///     }
///     Err(error) => assert!(error.is_permission(), "{error}"),
/// }
/// # Ok::<(), pagepool_lab::link::NetError>(())
/// ```
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// Refers to the namespace, for requests that move devices into it.
    handle: File,
    id: u64,
    work: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes one. The name is that of its thread, for whoever looks at the process; the first 15 bytes of it are seen.
    ///
    /// IPv6 is off in it, so that its links are silent until somebody sends; and TCP connections whose process is gone give
    /// up soon, because they keep a namespace as open sockets do.
    pub fn new(name: &str) -> Result<Self, NetError> {
        let (work, todo) = mpsc::channel::<Job>();
        let (made, handle) = mpsc::channel();
        let body = move || {
            let _ = made.send(leave()); // whoever started this thread waits for it
            todo.into_iter().for_each(|work| work());
        };
        let thread = Builder::new().name(name.into()).spawn(body);
        let thread = thread.map_err(|error| NetError::call("clone", "a thread for a namespace", error))?;
        let (handle, id) = handle.recv().expect("the thread sends before anything else")?;
        Ok(Self { name: name.into(), handle, id, work: Some(work), thread: Some(thread) })
    }

    /// Moves the calling thread into a new namespace, as silent as those of [`Namespace::new`], for the rest of its life. The
    /// namespace ends with the thread, and with what was made in it.
    pub fn enter_new() -> Result<(), NetError> {
        leave().map(drop)
    }

    /// The name that it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number for it, as in `ls -l /proc/PID/task/*/ns/net`.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Runs something in it and waits for the end. Panics if that panicked.
    ///
    /// Sockets made there stay in it wherever they are used, and keep it alive.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.is_here() {
            return work();
        }
        let (done, result) = mpsc::channel();
        let work = Box::new(move || {
            let _ = done.send(catch_unwind(AssertUnwindSafe(work))); // somebody waits for it
        });
        let sent = self.work.as_ref().is_some_and(|queue| queue.send(work).is_ok());
        debug_assert!(sent, "the thread takes work until the value is dropped");
        let result =
            result.recv().expect("the thread takes work until the value is dropped, and catches panics");
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Starts a thread in it.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, NetError> {
        let builder = Builder::new().name(name.into());
        let started = self.run(move || builder.spawn(work)); // a thread is in the namespace of whoever starts it
        started
            .map_err(|error| NetError::call("clone", format!("a thread in namespace {}", self.name), error))
    }

    /// A way to ask for, and to change, the links in it.
    pub fn netlink(&self) -> Result<Netlink, NetError> {
        self.run(Netlink::open)
    }

    /// A way to ask the drivers of the links in it.
    pub fn ethtool(&self) -> Result<Ethtool, NetError> {
        self.run(Ethtool::open)
    }

    fn is_here(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }
}

impl AsFd for Namespace {
    /// For requests that name a namespace, such as those that move a device.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for Namespace {
    /// Waits for what runs in it now. Threads of [`Namespace::spawn`] go on.
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "work is run under catch_unwind, and `run` borrows the value");
        }
    }
}

/// Moves this thread into a new namespace, and gives a handle to it and its number.
fn leave() -> Result<(File, u64), NetError> {
    let about = "a network namespace of our own";
    sys::namespace::unshare_network().map_err(|error| NetError::call("unshare", about, error))?;
    let handle = File::open(OWN).map_err(|error| NetError::call("open", OWN, error))?;
    let id = handle.metadata().map_err(|error| NetError::call("fstat", OWN, error))?.ino();
    for (setting, value) in SETTINGS {
        // Where it cannot be written there is no such protocol, or the namespace is a little louder, or goes a little later.
        let _ = std::fs::write(format!("/proc/sys/net/{setting}"), value);
    }
    Ok((handle, id))
}
