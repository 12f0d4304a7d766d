//! A back end of vhost-user for tests: a switch at a Unix socket, which can hang, close, refuse and lie.

mod message;
mod queue;
mod session;
mod settings;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use message::request;
use pagepool_link::sys::poll::{entry, poll};
use session::{Next, Session};
use settings::Shared;
pub use settings::{Fault, Frame, Lie, SwitchCounts, SwitchParams, Work};

/// A switch that connects tries it so often.
const CONNECTS_EVERY: Duration = Duration::from_millis(10);
/// Else it sleeps until something happens. This only bounds the sleep.
const SLEEP: Duration = Duration::from_secs(1);

/// A switch that a test controls: the back end of vhost-user, on a thread of its own.
///
/// It has one connection at a time. When that ends, it makes the next. Dropping it ends the connection and
/// removes its socket, as an orderly exit does.
///
/// # Examples
///
/// ```
/// use pagepool_lab::{FakeSwitch, SwitchParams, TempFolder};
///
/// let folder = TempFolder::new("pagepool-switch")?;
/// let path = folder.path().join("sw0.sock");
/// let switch = FakeSwitch::listen(&path, SwitchParams::default())?;
/// switch.send(&[7; 60][..]); // a front end that connects to `path` receives it
/// assert_eq!((switch.counts().connections, switch.counts().delivered), (0, 0));
/// switch.stop();
/// assert!(!path.exists());
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FakeSwitch {
    hub: Arc<Hub>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Hub {
    shared: Mutex<Shared>,
    changed: Condvar,
    /// Wakes the thread.
    wake: UnixStream,
}

/// How the switch gets its connections.
#[derive(Debug)]
enum Door {
    Listens(UnixListener, PathBuf),
    Connects(PathBuf),
}

impl FakeSwitch {
    /// A switch that listens at `path`. It replaces a socket that a killed one left.
    ///
    /// # Errors
    ///
    /// The system's error when it cannot listen there.
    pub fn listen(path: &Path, params: SwitchParams) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Self::start(Door::Listens(listener, path.into()), params)
    }

    /// A switch that connects to a front end that listens at `path`, now or later.
    ///
    /// # Errors
    ///
    /// The system's error when it cannot make a thread.
    pub fn connect(path: &Path, params: SwitchParams) -> io::Result<Self> {
        Self::start(Door::Connects(path.into()), params)
    }

    fn start(door: Door, params: SwitchParams) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        [&wake, &woken].into_iter().try_for_each(|end| end.set_nonblocking(true))?;
        let hub = Arc::new(Hub { shared: Mutex::new(Shared::new(params)), changed: Condvar::new(), wake });
        let of_thread = hub.clone();
        let run = move || Thread { hub: of_thread, woken, door, session: None }.run();
        let thread = std::thread::Builder::new().name("fake-switch".into()).spawn(run)?;
        Ok(Self { hub, thread: Some(thread) })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        let result = change(&mut self.hub.lock());
        let _ = (&self.hub.wake).write(&[0]); // full: it is woken already
        result
    }

    /// Queues a packet for the front end. It goes when there is a connection, and buffers for it.
    pub fn send(&self, frame: impl Into<Frame>) {
        let frame = frame.into();
        self.change(|shared| shared.outbound.entry(frame.pair).or_default().push_back(frame));
    }

    /// The next packet that the front end sent, if one comes within `limit`. For [`Work::Keep`].
    pub fn receive(&self, limit: Duration) -> Option<Frame> {
        let mut shared = self.hub.wait(limit, |shared| !shared.inbound.is_empty());
        shared.inbound.pop_front()
    }

    /// What it has done.
    pub fn counts(&self) -> SwitchCounts {
        self.hub.lock().counts
    }

    /// Waits until the counts are as wanted. False if they are not within `limit`.
    pub fn wait(&self, limit: Duration, wanted: impl Fn(&SwitchCounts) -> bool) -> bool {
        let shared = self.hub.wait(limit, |shared| wanted(&shared.counts));
        wanted(&shared.counts)
    }

    /// Waits until it has moved what there is to move. False if it has not within `limit`.
    pub fn settle(&self, limit: Duration) -> bool {
        let asked = self.change(|shared| {
            shared.settle += 1;
            shared.settle
        });
        self.hub.wait(limit, |shared| shared.settled >= asked).settled >= asked
    }

    /// Packets that wait for the front end's buffers.
    pub fn waiting(&self) -> usize {
        self.hub.lock().outbound.values().map(VecDeque::len).sum()
    }

    /// What it does with packets of the front end from now on.
    pub fn set_work(&self, work: Work) {
        self.change(|shared| shared.work = work);
    }

    /// What goes wrong with messages from now on.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.change(|shared| shared.fault = fault);
    }

    /// What is wrong in the rings from now on.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.change(|shared| shared.lie = lie);
    }

    /// Fills the rings of all running queues with nonsense, once. Equal seeds make equal nonsense.
    pub fn scribble(&self, seed: u64) {
        self.change(|shared| shared.scribble = Some(seed));
    }

    /// Ends the connection, as a killed switch does. Then it makes the next one.
    pub fn disconnect(&self) {
        self.change(|shared| shared.disconnect = true);
    }

    /// Ends the connection and the switch.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for FakeSwitch {
    fn drop(&mut self) {
        self.change(|shared| shared.stop = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panic was printed
        }
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, limit: Duration, wanted: impl Fn(&Shared) -> bool) -> MutexGuard<'_, Shared> {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |shared| !wanted(shared));
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(shared, _)| shared)
    }
}

/// The switch's thread.
struct Thread {
    hub: Arc<Hub>,
    woken: UnixStream,
    door: Door,
    session: Option<Session>,
}

impl Thread {
    fn run(mut self) {
        let hub = self.hub.clone();
        loop {
            let has_message = self.sleep();
            let mut shared = hub.lock();
            if shared.stop {
                break;
            }
            self.turn(&mut shared, has_message);
            hub.changed.notify_all();
        }
        drop(self.session); // before its socket goes
        if let Door::Listens(_, path) = &self.door {
            let _ = std::fs::remove_file(path);
        }
    }

    /// One turn: commands of the test, connections, a message, packets.
    fn turn(&mut self, shared: &mut Shared, has_message: bool) {
        if std::mem::take(&mut shared.disconnect) {
            self.end(shared);
        }
        if self.session.is_none() {
            self.begin(shared);
        }
        let Some(session) = &mut self.session else {
            shared.settled = shared.settle;
            return;
        };
        if let Some(seed) = shared.scribble.take() {
            session.scribble(seed);
        }
        let next = if !has_message {
            Next::GoesOn
        } else if session.hung {
            discard(&session.stream)
        } else {
            session.message(shared).unwrap_or(Next::Ends)
        };
        if next == Next::Ends {
            self.end(shared);
        } else if session.move_packets(shared) {
            self.wake_self();
            return;
        }
        shared.settled = shared.settle;
    }

    /// Sleeps until something happens. Returns whether the front end sent a message or closed.
    fn sleep(&self) -> bool {
        let session = self.session.as_ref();
        let listener = match &self.door {
            Door::Listens(listener, _) if session.is_none() => Some(listener.as_fd()),
            _ => None,
        };
        let waits = session.is_some() || listener.is_some();
        let stream = session.map(|session| session.stream.as_fd());
        let mut polled = vec![entry(stream), entry(Some(self.woken.as_fd())), entry(listener)];
        polled.extend(session.iter().flat_map(|of| of.kicks()).map(|kick| entry(Some(kick.as_fd()))));
        poll(&mut polled, if waits { SLEEP } else { CONNECTS_EVERY });
        let _ = (&self.woken).read(&mut [0; 4096]); // wakes are not counted
        for kick in session.iter().flat_map(|of| of.kicks()) {
            let readable = polled.iter().any(|polled| polled.revents != 0 && polled.fd == kick.as_raw_fd());
            let _ = readable.then(|| rustix::io::read(kick, &mut [0; 8]));
        }
        polled[0].revents != 0
    }

    fn begin(&mut self, shared: &mut Shared) {
        let reached = match &self.door {
            Door::Listens(listener, _) => listener.accept().map(|(stream, _)| stream),
            Door::Connects(path) => UnixStream::connect(path),
        };
        let session = reached.and_then(|stream| Session::new(stream, shared.params.pairs));
        self.session = session.ok();
        shared.counts.connections += u64::from(self.session.is_some());
    }

    fn end(&mut self, shared: &mut Shared) {
        shared.counts.ended += u64::from(self.session.take().is_some());
        self.wake_self();
    }

    fn wake_self(&self) {
        let _ = (&self.hub.wake).write(&[0]); // full: it is woken already
    }
}

/// Reads what a hung switch does not answer.
fn discard(mut stream: &UnixStream) -> Next {
    match stream.read(&mut [0; 4096]) {
        Ok(1..) => Next::GoesOn,
        _ => Next::Ends,
    }
}
