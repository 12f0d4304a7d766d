//! A client of the server: its request comes, the answer goes, and nobody waits for either.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Bytes of a request, at most.
const MOST_BYTES: usize = 8 << 10;
/// How long a request may take, an answer, and a client that has it to close its end.
const REQUEST_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(10);
const END_TIME: Duration = Duration::from_secs(1);

/// A connection.
pub struct MetricsClient {
    stream: TcpStream,
    /// When its present step began.
    since: Instant,
    step: ClientStep,
}

/// How far it is.
enum ClientStep {
    /// So much of the request has come.
    Request(Vec<u8>),
    /// What is still to be sent.
    Answer(Vec<u8>, usize),
    /// It has the answer. What it still sends is read: to close before would take the answer away from it.
    End,
}

impl MetricsClient {
    /// One that has just connected.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, since: Instant::now(), step: ClientStep::Request(Vec::new()) })
    }

    /// Its descriptor, and whether it is to take something.
    pub fn waits_for(&self) -> (BorrowedFd<'_>, bool) {
        (self.stream.as_fd(), matches!(self.step, ClientStep::Answer(..)))
    }

    /// How much is lost if it is closed now, for one that needs its place: it has its answer, has not asked
    /// yet, or is taking the answer.
    pub fn worth(&self) -> u32 {
        match self.step {
            ClientStep::End => 0,
            ClientStep::Request(_) => 1,
            ClientStep::Answer(..) => 2,
        }
    }

    /// Reads and writes as much as goes without waiting; `answer` makes the answer to a request. False when
    /// it is done with: answered, gone, or too slow.
    pub fn go_on(&mut self, answer: impl FnOnce(&[u8]) -> Vec<u8>) -> bool {
        let time = match self.step {
            ClientStep::Request(_) => REQUEST_TIME,
            ClientStep::Answer(..) => ANSWER_TIME,
            ClientStep::End => END_TIME,
        };
        match self.try_on(answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.since.elapsed() < time,
            _ => false, // a client that goes away harms nobody
        }
    }

    fn try_on(&mut self, answer: impl FnOnce(&[u8]) -> Vec<u8>) -> io::Result<()> {
        if let ClientStep::Request(head) = &mut self.step {
            read_head(&mut self.stream, head)?;
            self.step = ClientStep::Answer(answer(head), 0);
            self.since = Instant::now();
        }
        if let ClientStep::Answer(text, sent) = &mut self.step {
            while *sent < text.len() {
                *sent += some(self.stream.write(&text[*sent..])?)?;
            }
            self.stream.shutdown(Shutdown::Write)?;
            (self.step, self.since) = (ClientStep::End, Instant::now());
        }
        while self.stream.read(&mut [0; 1024])? > 0 {}
        Ok(())
    }
}

/// Reads the head of a request to its end, or to that of what came.
fn read_head(from: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<()> {
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MOST_BYTES {
        match from.read(&mut part)? {
            0 if head.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    Ok(())
}

fn some(written: usize) -> io::Result<usize> {
    if written == 0 { Err(ErrorKind::WriteZero.into()) } else { Ok(written) }
}
