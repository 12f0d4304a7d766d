//! Messages of vhost-user, as the front end sends them (QEMU's document "Vhost-user Protocol").

use std::fmt;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::sys;
use crate::virtio::back_end::SharedRegion;

/// How long a back end may take for all messages of a step: to connect, or to start or stop a pair.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;
/// Request, flags and size.
const HEADER: usize = 12;
/// Answers are numbers of 64 bits, or a queue's number and state.
const ANSWER: usize = 8;

/// A request to the back end, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Request {
    GetFeatures = 1,
    SetFeatures = 2,
    SetOwner = 3,
    SetMemTable = 5,
    SetVringNum = 8,
    SetVringAddr = 9,
    SetVringBase = 10,
    GetVringBase = 11,
    SetVringKick = 12,
    SetVringCall = 13,
    GetProtocolFeatures = 15,
    SetProtocolFeatures = 16,
    GetQueueNum = 17,
    SetVringEnable = 18,
}

impl Request {
    /// Its name in the protocol's document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GetFeatures => "VHOST_USER_GET_FEATURES",
            Self::SetFeatures => "VHOST_USER_SET_FEATURES",
            Self::SetOwner => "VHOST_USER_SET_OWNER",
            Self::SetMemTable => "VHOST_USER_SET_MEM_TABLE",
            Self::SetVringNum => "VHOST_USER_SET_VRING_NUM",
            Self::SetVringAddr => "VHOST_USER_SET_VRING_ADDR",
            Self::SetVringBase => "VHOST_USER_SET_VRING_BASE",
            Self::GetVringBase => "VHOST_USER_GET_VRING_BASE",
            Self::SetVringKick => "VHOST_USER_SET_VRING_KICK",
            Self::SetVringCall => "VHOST_USER_SET_VRING_CALL",
            Self::GetProtocolFeatures => "VHOST_USER_GET_PROTOCOL_FEATURES",
            Self::SetProtocolFeatures => "VHOST_USER_SET_PROTOCOL_FEATURES",
            Self::GetQueueNum => "VHOST_USER_GET_QUEUE_NUM",
            Self::SetVringEnable => "VHOST_USER_SET_VRING_ENABLE",
        }
    }
}

/// Why a message failed.
#[derive(Debug)]
pub(super) enum MessageError {
    /// The socket failed, or the other end closed it or did not answer in time.
    Socket(io::Error),
    /// The back end refused the message.
    Refused,
    /// The answer is not one to this message.
    Nonsense,
}

impl From<io::Error> for MessageError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Socket(error) = self else {
            let refused = matches!(self, Self::Refused);
            return f.write_str(if refused { "refused it" } else { "gave an answer to another message" });
        };
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                write!(f, "did not answer within {} s", PATIENCE.as_secs())
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                f.write_str("closed the connection")
            }
            _ => write!(f, "cannot be reached: {error}"),
        }
    }
}

/// A connection to a back end.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// When the present step must be over.
    deadline: Instant,
    /// Whether the back end acknowledges every message.
    pub(super) acknowledges: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Self { stream, deadline: Instant::now(), acknowledges: false })
    }

    /// Begins a step, which has this long.
    pub(super) fn begin(&mut self) {
        self.deadline = Instant::now() + PATIENCE;
    }

    /// The rest of the time of this step.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn read(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            self.stream.set_read_timeout(self.left()?)?;
            match self.stream.read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => into = &mut into[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a message, and waits for the acknowledgement if there is to be one.
    pub(super) fn set(
        &mut self,
        request: Request,
        body: &[u64],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), MessageError> {
        self.send(request, if self.acknowledges { NEEDS_REPLY } else { 0 }, body, files)?;
        match self.acknowledges && self.answer(request)? != 0 {
            true => Err(MessageError::Refused),
            false => Ok(()),
        }
    }

    /// Sends a message, and returns the answer.
    pub(super) fn get(&mut self, request: Request, body: &[u64]) -> Result<u64, MessageError> {
        self.send(request, 0, body, &[])?;
        self.answer(request)
    }

    fn send(
        &self,
        request: Request,
        flags: u32,
        body: &[u64],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), MessageError> {
        let head = [request as u32, VERSION | flags, size_of_val(body) as u32];
        let head = head.iter().flat_map(|word| word.to_ne_bytes());
        let message: Vec<u8> = head.chain(body.iter().flat_map(|word| word.to_ne_bytes())).collect();
        self.stream.set_write_timeout(self.left()?)?;
        Ok(sys::send(&self.stream, &message, files)?)
    }

    fn answer(&mut self, request: Request) -> Result<u64, MessageError> {
        let mut head = [0; HEADER];
        self.read(&mut head)?;
        let word = |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        if word(0) != request as u32 || word(4) & REPLY == 0 || word(8) as usize != ANSWER {
            return Err(MessageError::Nonsense);
        }
        let mut body = [0; ANSWER];
        self.read(&mut body)?;
        Ok(u64::from_ne_bytes(body))
    }

    pub(super) fn is_closed(&self) -> bool {
        sys::is_closed(&self.stream)
    }
}

/// Two numbers of 32 bits, as the words of a message.
pub(super) fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The table of regions, as the words of a message: their number, then addresses, lengths, addresses here, and
/// where they begin in their files.
pub(super) fn memory_table(memory: &[SharedRegion<'_>]) -> Vec<u64> {
    let regions = memory.iter().flat_map(|region| [region.device, region.len, region.address, 0]);
    [pair(memory.len() as u32, 0)].into_iter().chain(regions).collect()
}
