//! Messages of vhost-user, as the back end receives them (QEMU's document "Vhost-user Protocol").

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The numbers of messages.
pub mod request {
    /// The back end's features.
    pub const GET_FEATURES: u32 = 1;
    /// The features to use.
    pub const SET_FEATURES: u32 = 2;
    /// The first message.
    pub const SET_OWNER: u32 = 3;
    /// The memory, with a descriptor for each region.
    pub const SET_MEM_TABLE: u32 = 5;
    /// The size of a queue.
    pub const SET_VRING_NUM: u32 = 8;
    /// The addresses of a queue.
    pub const SET_VRING_ADDR: u32 = 9;
    /// The entry at which a queue begins.
    pub const SET_VRING_BASE: u32 = 10;
    /// Stops a queue.
    pub const GET_VRING_BASE: u32 = 11;
    /// The event counter by which the front end signals.
    pub const SET_VRING_KICK: u32 = 12;
    /// The event counter by which the back end signals.
    pub const SET_VRING_CALL: u32 = 13;
    /// Features of the protocol.
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    /// The features of the protocol to use.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// The number of queues of each direction.
    pub const GET_QUEUE_NUM: u32 = 17;
    /// Enables or disables a queue.
    pub const SET_VRING_ENABLE: u32 = 18;

    /// All of them, with their names in the protocol's document, in the order of a start and an end.
    pub const ALL: [(u32, &str); 14] = [
        (SET_OWNER, "VHOST_USER_SET_OWNER"),
        (GET_FEATURES, "VHOST_USER_GET_FEATURES"),
        (GET_PROTOCOL_FEATURES, "VHOST_USER_GET_PROTOCOL_FEATURES"),
        (SET_PROTOCOL_FEATURES, "VHOST_USER_SET_PROTOCOL_FEATURES"),
        (GET_QUEUE_NUM, "VHOST_USER_GET_QUEUE_NUM"),
        (SET_FEATURES, "VHOST_USER_SET_FEATURES"),
        (SET_MEM_TABLE, "VHOST_USER_SET_MEM_TABLE"),
        (SET_VRING_NUM, "VHOST_USER_SET_VRING_NUM"),
        (SET_VRING_BASE, "VHOST_USER_SET_VRING_BASE"),
        (SET_VRING_ADDR, "VHOST_USER_SET_VRING_ADDR"),
        (SET_VRING_CALL, "VHOST_USER_SET_VRING_CALL"),
        (SET_VRING_KICK, "VHOST_USER_SET_VRING_KICK"),
        (SET_VRING_ENABLE, "VHOST_USER_SET_VRING_ENABLE"),
        (GET_VRING_BASE, "VHOST_USER_GET_VRING_BASE"),
    ];
}

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;
/// Request, flags and size.
const HEADER: usize = 12;
/// More than any message has.
const MOST_BYTES: usize = 4096;
const MOST_FILES: usize = 8;

/// A message of the front end.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) request: u32,
    /// Whether the front end waits for an acknowledgement.
    pub(super) needs_reply: bool,
    body: Vec<u8>,
    pub(super) files: VecDeque<OwnedFd>,
}

impl Message {
    /// Reads a message; `None` after the end of the connection.
    pub(super) fn read(mut stream: &UnixStream) -> io::Result<Option<Self>> {
        let mut head = [0; HEADER];
        let (read, files) = read_with_files(stream, &mut head)?;
        if read == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut head[read..])?;
        let (request, flags, size) = (u32_at(&head, 0), u32_at(&head, 4), u32_at(&head, 8) as usize);
        if size > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {size} bytes")));
        }
        let mut body = vec![0; size];
        stream.read_exact(&mut body)?;
        Ok(Some(Self { request, needs_reply: flags & NEEDS_REPLY != 0, body, files }))
    }

    /// A number of 64 bits; 0 beyond the end.
    pub(super) fn word(&self, number: usize) -> u64 {
        let bytes = self.body.get(8 * number..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// The first two numbers of 32 bits.
    pub(super) fn pair(&self) -> (usize, u32) {
        let [a, b, c, d, e, f, g, h] = self.word(0).to_ne_bytes();
        (u32::from_ne_bytes([a, b, c, d]) as usize, u32::from_ne_bytes([e, f, g, h]))
    }

    /// Answers it.
    pub(super) fn answer(&self, stream: &UnixStream, answer: u64) -> io::Result<()> {
        write_answer(stream, self.request, answer)
    }
}

/// Two numbers of 32 bits as one.
pub(super) fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Writes an answer to a request.
pub(super) fn write_answer(mut stream: &UnixStream, request: u32, answer: u64) -> io::Result<()> {
    let head = [request, VERSION | REPLY, size_of_val(&answer) as u32];
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(answer.to_ne_bytes());
    stream.write_all(&bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Reads bytes, and the descriptors that came with them.
fn read_with_files(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, VecDeque<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = recvmsg(stream, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = VecDeque::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            files.extend(all);
        }
    }
    Ok((read, files))
}
