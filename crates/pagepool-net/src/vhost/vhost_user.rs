//! A back end in another process: vhost-user over a Unix socket.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use pagepool::Error;

use super::message::{Connection, MessageError, Request, memory_table, pair};
use super::sys;
use crate::sys::errno;
use crate::sys::remedy::failed_unless;
use crate::virtio::back_end::{BackEnd, QueueSetup, SharedRegion, Wanted, feature};

/// The feature bit behind which the protocol's own features are.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Features of the protocol: several pairs of queues, and acknowledgements.
const MULTI_QUEUE: u64 = 1 << 0;
const REPLY_ACK: u64 = 1 << 3;

/// The front end's side of a socket.
#[derive(Debug)]
pub(crate) struct VhostUser {
    name: String,
    path: PathBuf,
    /// If this process listens, and the back end connects.
    listener: Option<Listener>,
    connection: Option<Connection>,
    has_protocol: bool,
    /// The highest pair, plus one.
    pairs: u16,
    /// Whether a message failed, so that answers may be those to earlier messages.
    stuck: bool,
}

/// What both sides have.
#[derive(Clone, Copy, Debug)]
struct Negotiated {
    features: u64,
    /// Whether there are features of the protocol. Then a queue must be enabled, too.
    has_protocol: bool,
}

/// A socket in the file system, which this process made and removes.
#[derive(Debug)]
struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Replaces a socket that a killed process left.
    fn new(path: &Path) -> io::Result<Self> {
        let socket = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            made => made?,
        };
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path: path.into() })
    }
}

/// Whether this is a socket at which nobody listens.
fn is_left(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket && sys::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl VhostUser {
    /// A back end that listens at `path`, or for which this process listens. For pairs of queues below
    /// `pairs`.
    pub(crate) fn new(name: &str, path: &Path, listens: bool, pairs: u16) -> Result<Self, Error> {
        let listen = || Listener::new(path).map_err(|error| not_bound(path, error));
        let listener = listens.then(listen).transpose()?;
        let (name, path) = (name.to_owned(), path.to_owned());
        Ok(Self { name, path, listener, connection: None, has_protocol: false, pairs, stuck: false })
    }

    fn reach(&self) -> Result<Connection, Error> {
        let reached = match &self.listener {
            Some(listener) => listener.socket.accept().map(|(stream, _)| stream),
            None => sys::connect(&self.path),
        };
        reached.and_then(Connection::new).map_err(|error| self.not_reached(error))
    }

    fn not_reached(&self, source: io::Error) -> Error {
        let path = self.path.display();
        if self.listener.is_some() {
            let what = format!("no back end has connected to {path}: start it as a client of this socket");
            return Error::Busy { what };
        }
        let own = match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Some(format!(
                "nobody listens at {path}: start the back end, or listen yourself \
                 (`vhost_user:{path},server=1`)"
            )),
            io::ErrorKind::WouldBlock => {
                Some(format!("the back end at {path} accepts no connection: it hangs, or is busy"))
            }
            io::ErrorKind::PermissionDenied => {
                Some(format!("this user may not write to {path}: chmod or chown it"))
            }
            _ => None,
        };
        failed_unless(own, "connect(AF_UNIX)", source, format!("{path} cannot be reached"))
    }

    /// Negotiates, and shares the memory.
    fn negotiate(
        &self,
        connection: &mut Connection,
        wanted: Wanted,
        memory: &[SharedRegion<'_>],
    ) -> Result<Negotiated, Error> {
        let negotiated = self.features(connection, wanted)?;
        let files: Vec<_> = memory.iter().filter_map(|region| region.file).collect();
        let done = connection.set(Request::SetMemTable, &memory_table(memory), &files);
        done.map_err(|error| self.failed(Request::SetMemTable, error))?;
        Ok(negotiated)
    }

    fn features(&self, connection: &mut Connection, wanted: Wanted) -> Result<Negotiated, Error> {
        let set = |connection: &mut Connection, request, words: &[u64]| {
            connection.set(request, words, &[]).map_err(|error| self.failed(request, error))
        };
        let get = |connection: &mut Connection, request| {
            connection.get(request, &[]).map_err(|error| self.failed(request, error))
        };
        set(connection, Request::SetOwner, &[])?;
        let offered = get(connection, Request::GetFeatures)?;
        let missing = wanted.required & !offered;
        if missing != 0 {
            return Err(feature::lacking(&self.name, missing));
        }
        let has_protocol = offered & PROTOCOL_FEATURES != 0;
        let protocol = if has_protocol { get(connection, Request::GetProtocolFeatures)? } else { 0 };
        if has_protocol {
            set(connection, Request::SetProtocolFeatures, &[protocol & (MULTI_QUEUE | REPLY_ACK)])?;
            connection.acknowledges = protocol & REPLY_ACK != 0;
        }
        let several = protocol & MULTI_QUEUE != 0;
        let pairs = if several { get(connection, Request::GetQueueNum)? } else { 1 };
        if pairs < u64::from(self.pairs) {
            let (name, last) = (&self.name, self.pairs - 1);
            let what = format!("{name} has no queue {last}: its back end has {pairs} of them");
            return Err(Error::Unsupported { what });
        }
        let features = offered & (wanted.required | wanted.optional);
        set(connection, Request::SetFeatures, &[features | offered & PROTOCOL_FEATURES])?;
        Ok(Negotiated { features, has_protocol })
    }

    fn start_queue(
        connection: &mut Connection,
        index: u32,
        queue: &QueueSetup<'_>,
    ) -> Result<(), (Request, MessageError)> {
        let at = [pair(index, 0), queue.descriptors, queue.used, queue.available, 0];
        let number = u64::from(index);
        let mut set = |request, words: &[u64], files: &[_]| {
            connection.set(request, words, files).map_err(|error| (request, error))
        };
        set(Request::SetVringNum, &[pair(index, queue.size.into())], &[])?;
        set(Request::SetVringBase, &[pair(index, 0)], &[])?;
        set(Request::SetVringAddr, &at, &[])?;
        set(Request::SetVringCall, &[number], &[queue.call])?;
        set(Request::SetVringKick, &[number], &[queue.kick])
    }

    /// The error of a message.
    fn failed(&self, request: Request, error: MessageError) -> Error {
        let (name, message) = (&self.name, request.name());
        let remedy = format!("the back end of {name} {error}; its log may say why");
        let source = match error {
            MessageError::Socket(source) => source,
            MessageError::Refused => io::Error::from_raw_os_error(errno::EPROTONOSUPPORT),
            MessageError::Nonsense => io::ErrorKind::InvalidData.into(),
        };
        Error::System { call: message, remedy, source }
    }
}

impl BackEnd for VhostUser {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&mut self, wanted: Wanted, memory: &[SharedRegion<'_>]) -> Result<u64, Error> {
        let mut connection = self.reach()?;
        connection.begin();
        let Negotiated { features, has_protocol } = self.negotiate(&mut connection, wanted, memory)?;
        (self.connection, self.has_protocol, self.stuck) = (Some(connection), has_protocol, false);
        Ok(features)
    }

    fn start(&mut self, pair_number: u16, queues: [QueueSetup<'_>; 2]) -> Result<(), Error> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::Busy { what: format!("{} is not connected", self.name) });
        };
        connection.begin();
        let first = 2 * u32::from(pair_number);
        let indices = [first, first + 1];
        let started = indices
            .into_iter()
            .zip(&queues)
            .try_for_each(|(index, queue)| Self::start_queue(&mut connection, index, queue));
        let enable = |index| {
            let done = connection.set(Request::SetVringEnable, &[pair(index, 1)], &[]);
            done.map_err(|error| (Request::SetVringEnable, error))
        };
        let enabled = started
            .and_then(|()| if self.has_protocol { indices.into_iter().try_for_each(enable) } else { Ok(()) });
        self.connection = Some(connection);
        enabled.map_err(|(request, error)| self.failed(request, error))
    }

    fn stop(&mut self, pair_number: u16) -> bool {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.stuck) else { return false };
        connection.begin();
        let first = 2 * u32::from(pair_number);
        let mut stopped = [first, first + 1].into_iter().map(|index| {
            let answer = connection.get(Request::GetVringBase, &[pair(index, 0)]);
            answer.is_ok() || connection.is_closed()
        });
        let both = stopped.all(|stopped| stopped);
        self.stuck = !both;
        both
    }

    fn is_gone(&mut self) -> bool {
        self.connection.as_ref().is_none_or(Connection::is_closed)
    }

    fn disconnect(&mut self) {
        self.connection = None;
    }
}

fn not_bound(path: &Path, source: io::Error) -> Error {
    let path = path.display();
    let own = match source.kind() {
        io::ErrorKind::AddrInUse => Some(format!(
            "another process listens at {path}, or it is no socket: leave out `server=1`, or use another path"
        )),
        io::ErrorKind::NotFound => Some(format!("the folder of {path} does not exist: create it")),
        io::ErrorKind::PermissionDenied => Some(format!("this user may not create {path}")),
        _ => None,
    };
    failed_unless(own, "bind(AF_UNIX)", source, format!("{path} cannot be a socket"))
}
