//! A TCP receiver over io_uring, with a pool's pages in its ring of provided buffers.
//!
//! Each connection has one multishot receive. The kernel takes a buffer from the ring for arriving data and
//! reports the buffer's number, which is its page number. The page becomes a handle again, and another thread
//! checks and drops it. The drop returns the page. The owner refills the ring from the pool. When the ring is
//! empty, the kernel ends receives with `ENOBUFS`. When the pool is empty too, the owner polls the pool's
//! descriptor through io_uring, and restarts the receives when a page has returned.

mod buffers;
mod provided;
mod stream;

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use buffers::{Buffers, PAGES};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use lab::{Error, Options, Outcome, Skip, ticks};
use provided::{GROUP, Provided};
use stream::{Checkers, Chunk};

/// Number of connections.
const CONNECTIONS: usize = 4;
/// Longest time without an arrival.
const TIMEOUT: Duration = Duration::from_secs(20);
/// User data of the poll for returned pages. Other requests carry the number of a connection.
const WOKEN: u64 = u64::MAX;
/// The errno of a receive that found no buffer.
const ENOBUFS: i32 = 105;

fn main() -> ExitCode {
    lab::main("io-uring", 40_000, run)
}

fn run(options: &Options) -> Result<Outcome, Error> {
    let ring = IoUring::new(64).map_err(|error| Skip(format!("io_uring_setup: {error}")))?;
    let buffers = Buffers::new(options.allocator)?;
    let bytes = options.count * 4096 / CONNECTIONS as u64;
    let (senders, connections) = stream::connect(CONNECTIONS, bytes)?;
    let mut receiver = Receiver::new(ring, buffers, &connections)?;
    let checkers = Checkers::start();
    receiver.run(&checkers)?;
    let seen = checkers.join()?;
    for sender in senders {
        sender.join().map_err(|_| "a sender panicked")??;
    }
    let (events, spent, received) =
        (vec![("waits for a buffer", receiver.waits)], receiver.spent, receiver.received);
    let returned = receiver.close()?;
    let (buffers, total) = (PAGES as u64, bytes * CONNECTIONS as u64);
    let each = |ticks: u64| ticks as f64 / received.max(1) as f64;
    let cost = vec![
        ("provide and take, cycles per buffer", each(spent)),
        ("return", each(seen.ticks)),
        ("both", each(spent + seen.ticks)),
    ];
    let (moved, missing) = (seen.good, total.saturating_sub(seen.good));
    Ok(Outcome { what: "bytes", moved, missing, wrong: seen.wrong, buffers, returned, cost, events })
}

/// Receives from all connections, on the thread that owns the pool.
struct Receiver<'a> {
    ring: IoUring,
    /// Dropped after the ring: the kernel reads it until then.
    provided: Provided,
    buffers: Buffers,
    connections: Vec<Connection<'a>>,
    open: usize,
    /// The pool is empty, and a poll of the pool's descriptor is pending.
    is_dry: bool,
    /// How often no receive could start.
    waits: u64,
    received: u64,
    /// Ticks spent on buffers.
    spent: u64,
}

struct Connection<'a> {
    socket: &'a TcpStream,
    /// Offset of the next bytes in the stream.
    offset: u64,
    /// No receive is pending.
    is_parked: bool,
}

impl<'a> Receiver<'a> {
    fn new(ring: IoUring, buffers: Buffers, sockets: &'a [TcpStream]) -> Result<Self, Error> {
        let provided = Provided::register(&ring)?;
        let connection = |socket| Connection { socket, offset: 0, is_parked: true };
        let (connections, open) = (sockets.iter().map(connection).collect(), sockets.len());
        let (is_dry, waits, received, spent) = (false, 0, 0, 0);
        Ok(Self { ring, provided, buffers, connections, open, is_dry, waits, received, spent })
    }

    fn run(&mut self, checkers: &Checkers) -> Result<(), Error> {
        let timeout = Timespec::from(TIMEOUT);
        let mut completions = Vec::new();
        while self.open > 0 {
            if !self.is_dry {
                self.refill()?;
            }
            if self.provided.count() > 0 {
                self.start_receives()?;
            } else if self.connections.iter().any(|connection| connection.is_parked) {
                self.waits += 1;
                if !self.is_dry {
                    self.buffers.wait(TIMEOUT)?; // there is no descriptor to poll
                    continue;
                }
            }
            let waiting = SubmitArgs::new().timespec(&timeout);
            self.ring.submitter().submit_with_args(1, &waiting)?;
            completions.extend(self.ring.completion());
            completions.drain(..).try_for_each(|completion| self.complete(&completion, checkers))?;
        }
        Ok(())
    }

    /// Provides all free buffers. If the ring still has room, polls for the next returned page.
    fn refill(&mut self) -> Result<(), Error> {
        let start = ticks();
        while self.provided.has_room() {
            let Some((at, len, number)) = self.buffers.provide() else { break };
            self.provided.push(at, len, number);
        }
        self.provided.publish();
        self.spent += ticks() - start;
        if let Some(fd) = self.buffers.wake_fd().filter(|_| self.provided.has_room()) {
            const POLLIN: u32 = 1;
            push(&mut self.ring, &opcode::PollAdd::new(Fd(fd), POLLIN).build().user_data(WOKEN))?;
            self.is_dry = true;
        }
        Ok(())
    }

    fn start_receives(&mut self) -> Result<(), Error> {
        for (number, connection) in self.connections.iter_mut().enumerate() {
            if std::mem::take(&mut connection.is_parked) {
                let receive = opcode::RecvMulti::new(Fd(connection.socket.as_raw_fd()), GROUP).build();
                push(&mut self.ring, &receive.user_data(number as u64))?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, completion: &cqueue::Entry, checkers: &Checkers) -> Result<(), Error> {
        if completion.user_data() == WOKEN {
            self.is_dry = false;
            self.buffers.acknowledge_wake();
            return Ok(());
        }
        let connection = &mut self.connections[completion.user_data() as usize];
        let (result, flags) = (completion.result(), completion.flags());
        if let Some(number) = cqueue::buffer_select(flags) {
            let start = ticks();
            let buffer = self.buffers.take(number)?;
            self.spent += ticks() - start;
            self.provided.took();
            self.received += 1;
            let len = usize::try_from(result).unwrap_or(0);
            let (number, offset) = (completion.user_data(), connection.offset);
            connection.offset += len as u64;
            checkers.check(Chunk { connection: number, offset, len, buffer })?;
        }
        match result {
            0 => self.open -= 1, // the peer has sent everything
            _ if cqueue::more(flags) => {}
            1.. => connection.is_parked = true,
            _ if result == -ENOBUFS => connection.is_parked = true,
            error => return Err(std::io::Error::from_raw_os_error(-error).into()),
        }
        Ok(())
    }

    /// Ends the ring, which frees the buffers still provided. Returns how many buffers are free.
    fn close(self) -> Result<u64, Error> {
        self.ring.submitter().unregister_buf_ring(GROUP)?;
        drop(self.ring);
        Ok(self.buffers.close(self.provided.count())?)
    }
}

/// Queues a request. The submission queue has room for one per connection and one more.
fn push(ring: &mut IoUring, request: &squeue::Entry) -> Result<(), Error> {
    // SAFETY: everything that the request refers to lives as long as the ring: the sockets, the pool's
    // descriptor, and the provided buffers.
    unsafe { ring.submission().push(request) }?;
    Ok(())
}
