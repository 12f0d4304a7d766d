//! What packets are received into: the choice that this example is about.

use std::io;
use std::os::fd::OwnedFd;

use bytes::{Bytes, BytesMut};
use lab::{Allocator, Error, ticks};
use pagepool::{Arena, ArenaParams, Bound, PageBuf, Pool, PoolParams};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;

/// Pages there are: fewer than the tasks' queues hold, so that they may run out.
const PAGES: u64 = 32;
/// Most bytes of a packet.
const ROOM: usize = 2048;

/// Buffers for packets.
pub enum Buffers {
    Pool(PoolBuffers),
    /// Cut from larger ones that `BytesMut` allocates, and frees when all that was cut from them is gone.
    Own(BytesMut),
}

/// Pages of a pool.
pub struct PoolBuffers {
    pool: Bound,
    /// Readable when a page is back after there was none.
    woken: AsyncFd<OwnedFd>,
    waits: u64,
    /// A page for the next packet.
    next: Option<PageBuf>,
}

impl Buffers {
    /// Within a runtime.
    pub fn new(allocator: Allocator) -> Result<Self, Error> {
        if allocator == Allocator::Own {
            return Ok(Self::Own(BytesMut::new()));
        }
        let arena = Arena::new(ArenaParams { max_bytes: PAGES << 12, ..Default::default() })?;
        let pool = Pool::new(PoolParams { wakeup: true, max_len: ROOM, ..Default::default() }, arena)?.bind();
        let fd = pool.wake_fd().ok_or("the pool was asked for a descriptor")?.try_clone_to_owned()?;
        // SAFETY: the descriptor is the `AsyncFd`'s own, and the same one until that is dropped.
        let woken = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self::Pool(PoolBuffers { pool, woken, waits: 0, next: None }))
    }

    /// The next packet. Adds the ticks that were spent on its buffer.
    pub async fn receive(&mut self, socket: &UdpSocket, spent: &mut u64) -> Result<Bytes, Error> {
        loop {
            let got = match self {
                Self::Pool(buffers) => buffers.receive(socket, spent).await,
                Self::Own(buffer) => receive_own(buffer, socket, spent),
            };
            match got {
                Ok(packet) => return Ok(packet),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.readable().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How often there was no buffer.
    pub fn waits(&self) -> u64 {
        if let Self::Pool(buffers) = self { buffers.waits } else { 0 }
    }

    /// How many buffers there are, and how many of them are home.
    pub fn close(self) -> Result<(u64, u64), Error> {
        let Self::Pool(PoolBuffers { pool, next, .. }) = self else { return Ok((0, 0)) };
        drop(next);
        let out = pool.inflight().out;
        let ended = pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok((PAGES, PAGES - out))
        } else {
            Err("a pool ends when all is home".into())
        }
    }
}

impl PoolBuffers {
    async fn receive(&mut self, socket: &UdpSocket, spent: &mut u64) -> io::Result<Bytes> {
        let start = ticks();
        let page = self.next.take().or_else(|| self.pool.alloc_page());
        *spent += ticks() - start;
        let mut page = match page {
            Some(page) => page,
            None => self.wait().await?,
        };
        let got = socket.try_recv(page.packet_mut().expect("an arena's memory is readable"));
        let len = match got {
            Ok(len) => len,
            Err(error) => {
                self.next = Some(page);
                return Err(error);
            }
        };
        let start = ticks();
        let offset = page.packet_offset();
        let bytes = page.into_bytes(offset, len).expect("it was received into that room");
        *spent += ticks() - start;
        Ok(bytes)
    }

    /// Sleeps until a page is back. The signal is taken back before each attempt, never between one that
    /// failed and the sleep: it may be the one that should end that.
    async fn wait(&mut self) -> io::Result<PageBuf> {
        self.waits += 1;
        loop {
            self.woken.readable().await?.clear_ready();
            self.pool.acknowledge_wake();
            if let Some(page) = self.pool.alloc_page() {
                return Ok(page);
            }
        }
    }
}

fn receive_own(buffer: &mut BytesMut, socket: &UdpSocket, spent: &mut u64) -> io::Result<Bytes> {
    let start = ticks();
    if buffer.capacity() < ROOM {
        buffer.reserve(32 * ROOM);
    }
    *spent += ticks() - start;
    let len = socket.try_recv_buf(buffer)?;
    let start = ticks();
    let bytes = buffer.split_to(len).freeze();
    *spent += ticks() - start;
    Ok(bytes)
}
