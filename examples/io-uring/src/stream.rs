//! Sends and checks streams. Each byte depends only on its connection and its offset.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::{Error, ticks};

use crate::buffers::Buffer;

/// Number of checking threads.
const CHECKERS: usize = 3;
/// Bytes per write.
const BLOCK: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Writes the bytes at this offset of a connection's stream.
fn write_stream(connection: u64, offset: u64, into: &mut [u8]) {
    let word = |at: u64| (at ^ connection << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let skip = (offset % 8) as usize;
    let (head, rest) = into.split_at_mut(into.len().min((8 - skip) % 8));
    head.copy_from_slice(&word(offset / 8)[skip..][..head.len()]);
    for (chunk, at) in rest.chunks_mut(8).zip(offset.div_ceil(8)..) {
        chunk.copy_from_slice(&word(at)[..chunk.len()]);
    }
}

type Senders = Vec<JoinHandle<io::Result<()>>>;

/// Opens connections over loopback. A thread per connection sends `bytes` bytes and shuts it down.
pub fn connect(connections: usize, bytes: u64) -> io::Result<(Senders, Vec<TcpStream>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut both = (Vec::new(), Vec::new());
    for connection in 0..connections as u64 {
        let mut sender = TcpStream::connect(listener.local_addr()?)?;
        sender.set_write_timeout(Some(TIMEOUT))?;
        both.1.push(listener.accept()?.0);
        both.0.push(thread::spawn(move || {
            let (mut block, mut sent) = (vec![0; BLOCK], 0);
            while sent < bytes {
                let len = (bytes - sent).min(BLOCK as u64);
                write_stream(connection, sent, &mut block[..len as usize]);
                sender.write_all(&block[..len as usize])?;
                sent += len;
            }
            sender.shutdown(Shutdown::Write)
        }));
    }
    Ok(both)
}

/// Received bytes, and their place in a stream.
pub struct Chunk {
    pub connection: u64,
    pub offset: u64,
    pub len: usize,
    pub buffer: Buffer,
}

/// Totals of the checking threads.
#[derive(Default)]
pub struct Checked {
    pub good: u64,
    pub wrong: u64,
    /// Ticks spent on returning buffers.
    pub ticks: u64,
}

/// Threads that check received bytes and return the buffers.
pub struct Checkers {
    queues: Vec<Sender<Chunk>>,
    threads: Vec<JoinHandle<Checked>>,
    next: AtomicUsize,
}

impl Checkers {
    pub fn start() -> Self {
        let start = |_| {
            let (queue, chunks) = mpsc::channel();
            (queue, thread::spawn(move || check(&chunks)))
        };
        let (queues, threads) = (0..CHECKERS).map(start).unzip();
        Self { queues, threads, next: AtomicUsize::new(0) }
    }

    /// Passes a chunk to one of the threads.
    pub fn check(&self, chunk: Chunk) -> Result<(), Error> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % CHECKERS;
        self.queues[next].send(chunk).map_err(|_| "a checker exited early".into())
    }

    pub fn join(self) -> Result<Checked, Error> {
        drop(self.queues);
        let mut all = Checked::default();
        for thread in self.threads {
            let Checked { good, wrong, ticks } = thread.join().map_err(|_| "a checker panicked")?;
            all = Checked { good: all.good + good, wrong: all.wrong + wrong, ticks: all.ticks + ticks };
        }
        Ok(all)
    }
}

fn check(chunks: &Receiver<Chunk>) -> Checked {
    let (mut seen, mut expected) = (Checked::default(), vec![0; BLOCK]);
    for Chunk { connection, offset, len, buffer } in chunks {
        write_stream(connection, offset, &mut expected[..len]);
        let is_good = buffer.bytes()[..len] == expected[..len];
        *if is_good { &mut seen.good } else { &mut seen.wrong } += len as u64;
        let start = ticks();
        buffer.free();
        seen.ticks += ticks() - start;
    }
    seen
}
