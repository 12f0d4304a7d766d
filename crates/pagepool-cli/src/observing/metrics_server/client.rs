//! A client of the server: reads its request and sends the answer, without waiting for either.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::sys::{PollFd, PollFlags};

pub const MOST_BYTES: usize = 8 << 10;
/// The most bytes after the head that are read while a connection ends.
const MOST_BEHIND: usize = 1 << 20;
/// The longest time for a request, for an answer, and for a client with its answer to close its end.
const REQUEST_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(10);
const END_TIME: Duration = Duration::from_secs(1);
/// The most reads and writes in a round: a client as fast as the server does not delay the others.
const CALLS_A_ROUND: usize = 8;

pub struct MetricsClient {
    stream: TcpStream,
    /// When its current step began.
    since: Instant,
    step: ClientStep,
}

enum ClientStep {
    /// The request, as far as it has come.
    Request(Vec<u8>),
    /// The answer, and how many bytes of it are sent.
    Answer(Vec<u8>, usize),
    /// The answer is sent; the client may send this many more bytes. They are read, because closing before
    /// that would discard the answer.
    End(usize),
}

impl MetricsClient {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, since: Instant::now(), step: ClientStep::Request(Vec::new()) })
    }

    /// What it waits for: to read, or to write.
    pub fn waits_for(&self) -> PollFd<'_> {
        let writes = matches!(self.step, ClientStep::Answer(..));
        PollFd::new(&self.stream, if writes { PollFlags::OUT } else { PollFlags::IN })
    }

    /// How much it loses if it is closed now: nothing with its answer sent; a little without a complete
    /// request; most while it takes its answer.
    pub fn closing_cost(&self) -> u32 {
        match self.step {
            ClientStep::End(_) => 0,
            ClientStep::Request(_) => 1,
            ClientStep::Answer(..) => 2,
        }
    }

    /// Reads and writes without waiting, at most a round's share. `answer` gets the head as far as it has
    /// come, and whether more may come; it returns the answer when it can. False when the client is finished:
    /// answered, gone, or too slow.
    pub fn advance(&mut self, answer: impl FnMut(&[u8], bool) -> Option<Vec<u8>>) -> bool {
        let is_open = match self.try_advance(answer) {
            Ok(is_open) => is_open,
            Err(error) => error.kind() == ErrorKind::WouldBlock, // a client that goes away does no harm
        };
        let time = match self.step {
            ClientStep::Request(_) => REQUEST_TIME,
            ClientStep::Answer(..) => ANSWER_TIME,
            ClientStep::End(_) => END_TIME,
        };
        is_open && self.since.elapsed() < time
    }

    fn try_advance(&mut self, mut answer: impl FnMut(&[u8], bool) -> Option<Vec<u8>>) -> io::Result<bool> {
        for _ in 0..CALLS_A_ROUND {
            let next = match &mut self.step {
                ClientStep::Request(head) => {
                    let has_ended = read_more(&mut self.stream, head)? == 0;
                    if head.is_empty() {
                        return Ok(false);
                    }
                    let text = answer(head, !has_ended && head.len() < MOST_BYTES);
                    text.map(|text| ClientStep::Answer(text, 0))
                }
                ClientStep::Answer(text, sent) => send_more(&mut self.stream, text, sent)?,
                ClientStep::End(left) => match self.stream.read(&mut [0; 16 << 10])? {
                    read if read == 0 || read > *left => return Ok(false),
                    read => {
                        *left -= read;
                        None
                    }
                },
            };
            if let Some(next) = next {
                (self.step, self.since) = (next, Instant::now());
            }
        }
        Ok(true)
    }
}

/// Sends more of an answer. Returns the next step once all of it is sent.
fn send_more(to: &mut TcpStream, text: &[u8], sent: &mut usize) -> io::Result<Option<ClientStep>> {
    match to.write(&text[*sent..])? {
        0 => return Err(ErrorKind::WriteZero.into()),
        written => *sent += written,
    }
    if *sent < text.len() {
        return Ok(None);
    }
    to.shutdown(Shutdown::Write)?;
    Ok(Some(ClientStep::End(MOST_BEHIND)))
}

/// Reads more of the head of a request, up to its limit. Returns the number of bytes.
fn read_more(from: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; MOST_BYTES];
    let read = from.read(&mut part[head.len()..])?;
    let at = head.len();
    head.extend_from_slice(&part[at..at + read]);
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Both ends of a connection.
    fn connected() -> (TcpStream, MetricsClient) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (theirs, MetricsClient::new(listener.accept().unwrap().0).unwrap())
    }

    fn answer(head: &[u8], _: bool) -> Option<Vec<u8>> {
        head.starts_with(b"GET").then(|| b"answer".to_vec())
    }

    #[test]
    fn extra_bytes_of_a_client_are_read_in_several_rounds() {
        let (mut theirs, mut ours) = connected();
        theirs.write_all(b"GET").unwrap();
        theirs.set_nonblocking(true).unwrap();
        let waits: usize = std::iter::from_fn(|| theirs.write(&[0; 64 << 10]).ok()).sum();
        assert!(waits > 128 << 10, "{waits} bytes wait");
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(ours.advance(answer), "one round does not read all of it");
    }

    #[test]
    fn an_endless_client_is_closed_after_its_time() {
        let (mut theirs, mut ours) = connected();
        let sender = thread::spawn(move || {
            theirs.write_all(b"GET").unwrap();
            let written = std::iter::from_fn(|| theirs.write(&[0; 64 << 10]).ok());
            written.take(4096).sum::<usize>()
        });
        while ours.advance(answer) {}
        drop(ours);
        let sent = sender.join().unwrap();
        assert!(sent < 64 << 20, "{sent} bytes of 256 MiB");
    }
}
