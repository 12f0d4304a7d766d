//! A back end on a thread: it serves one front end after the other.

use std::fs::{metadata, remove_file};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use vhost::vhost_user::{Error as MessageError, Listener};
use vhost_user_backend::{Error as DaemonError, ShutdownHandle, VhostUserDaemon};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::counts::Counts;
use crate::queue_pair::{Mode, QueuePair, SharedMemory};
use crate::service::{FEATURES, Service};

/// Milliseconds between two attempts to connect: nothing tells that a front end listens.
const RETRY: i32 = 20;
/// The most queue pairs: rust-vmm names the queues of a thread by the bits of a word.
const MOST_PAIRS: usize = 32;

/// What a back end is.
#[derive(Clone, Debug)]
pub struct Params {
    /// The socket.
    pub socket: PathBuf,
    /// Whether to connect to the socket; else it is created.
    pub connect: bool,
    /// Queue pairs, 1 to 32.
    pub queues: usize,
    /// What happens to packets.
    pub mode: Mode,
    /// Features that are offered: all or some of [`FEATURES`].
    pub features: u64,
}

impl Params {
    /// One queue pair with all features, at a socket that is created.
    pub fn new(socket: impl Into<PathBuf>, mode: Mode) -> Self {
        Self { socket: socket.into(), connect: false, queues: 1, mode, features: FEATURES }
    }
}

/// What the thread and its handle share.
struct Shared {
    params: Params,
    pairs: Vec<Arc<QueuePair>>,
    /// Readable once the thread is to end.
    stop: EventFd,
    stopping: AtomicBool,
    connection: Mutex<Option<ShutdownHandle>>,
}

/// A back end that runs. Dropping it stops it.
pub struct BackEnd {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BackEnd {
    /// Starts it. Its socket exists when this returns, unless it connects.
    pub fn start(params: Params) -> Result<Self> {
        if !(1..=MOST_PAIRS).contains(&params.queues) {
            let text = format!("{} queue pairs, but there must be 1 to {MOST_PAIRS}", params.queues);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let listener = if params.connect { None } else { Some(bind(&params.socket)?.into()) };
        let (pairs, stop) = ((0..params.queues).map(|_| Arc::default()).collect(), event()?);
        let (stopping, connection) = (AtomicBool::new(false), Mutex::new(None));
        let shared = Arc::new(Shared { params, pairs, stop, stopping, connection });
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("back-end".into()).spawn(move || of_thread.run(listener))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A queue pair.
    pub fn pair(&self, number: usize) -> Arc<QueuePair> {
        self.shared.pairs[number].clone()
    }

    /// What all queue pairs have done so far.
    pub fn counts(&self) -> Counts {
        self.shared.pairs.iter().map(|pair| pair.counts()).fold(Counts::default(), Counts::plus)
    }

    /// Ends the connection and removes the socket. As if its process was killed, it touches no memory of the
    /// front end once the connection has ended.
    pub fn stop(mut self) -> Counts {
        self.end();
        self.counts()
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.shared.params.connect {
            let _ = remove_file(&self.shared.params.socket); // somebody may have removed it
        }
        self.shared.pairs.iter().for_each(|pair| pair.disconnect(true));
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = self.shared.stop.write(1); // fails only if it is readable already
        self.shared.hang_up();
        let _ = thread.join(); // a panic has been printed
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        self.end();
    }
}

fn event() -> Result<EventFd> {
    EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)
}

/// Listens. Replaces the socket of a process that was killed, and nothing else.
fn bind(path: &Path) -> Result<UnixListener> {
    let stale = || {
        metadata(path).is_ok_and(|file| file.file_type().is_socket())
            && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && stale() => {
            remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Ends the connection if there is one.
    fn hang_up(&self) {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.iter().for_each(ShutdownHandle::shutdown);
    }

    fn run(&self, mut listener: Option<Listener>) {
        while !self.is_stopping() {
            if let Err(error) = self.serve_one(listener.as_mut()) {
                eprintln!("vhost-back-end: {}: {error}", self.params.socket.display());
            }
        }
    }

    /// Serves the next front end, until it leaves.
    fn serve_one(&self, listener: Option<&mut Listener>) -> std::result::Result<(), DaemonError> {
        let memory = SharedMemory::new(GuestMemoryMmap::new());
        let (pairs, acked, ended) = (self.pairs.clone(), AtomicU64::new(0), AtomicBool::new(false));
        let Params { mode, features, .. } = self.params;
        let service = Arc::new(Service { pairs, mode, features, memory: memory.clone(), acked, ended });
        let wake = event().map_err(DaemonError::StartDaemon)?;
        let mut daemon = VhostUserDaemon::new("messages".into(), service.clone(), memory)?;
        let after_queues = 2 * self.pairs.len() as u64 + 1;
        for thread in daemon.get_epoll_handlers() {
            let register = thread.register_listener(wake.as_raw_fd(), EventSet::IN, after_queues);
            register.map_err(DaemonError::StartDaemon)?;
        }
        let served = self.meet(&mut daemon, listener).and_then(|()| self.until_it_leaves(&mut daemon));
        self.pairs.iter().for_each(|pair| pair.disconnect(false));
        service.ended.store(true, Ordering::Release);
        let _ = wake.write(1); // fails only if it is readable already
        served // the daemon's end joins its threads
    }

    /// Waits for a front end, or for the end.
    fn meet(
        &self,
        daemon: &mut VhostUserDaemon<Arc<Service>>,
        listener: Option<&mut Listener>,
    ) -> std::result::Result<(), DaemonError> {
        if let Some(listener) = listener {
            self.wait(Some(listener), -1).map_err(DaemonError::StartDaemon)?;
            return if self.is_stopping() { Ok(()) } else { daemon.start(listener) };
        }
        while !self.is_stopping() && daemon.start_client(&self.params.socket.to_string_lossy()).is_err() {
            self.wait(None, RETRY).map_err(DaemonError::StartDaemon)?;
        }
        Ok(())
    }

    /// Waits for a front end that connects, for the end, or for so many milliseconds.
    fn wait(&self, listener: Option<&Listener>, limit: i32) -> Result<()> {
        let epoll = Epoll::new()?;
        let add = |fd| epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, 0));
        add(self.stop.as_raw_fd())?;
        listener.map_or(Ok(()), |listener| add(listener.as_raw_fd()))?;
        epoll.wait(limit, &mut [EpollEvent::default()]).map(drop)
    }

    fn until_it_leaves(
        &self,
        daemon: &mut VhostUserDaemon<Arc<Service>>,
    ) -> std::result::Result<(), DaemonError> {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = daemon.shutdown_handle();
        if self.is_stopping() {
            self.hang_up(); // `end` may have come before the connection
        }
        match daemon.wait() {
            Err(DaemonError::HandleRequest(MessageError::Disconnected)) => Ok(()),
            ended => ended,
        }
    }
}
