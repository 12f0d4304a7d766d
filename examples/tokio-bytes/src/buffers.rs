//! Buffers for received packets: pages of a pool, or `BytesMut`.

use std::io;
use std::os::fd::OwnedFd;

use bytes::{Bytes, BytesMut};
use lab::{Allocator, Error, ticks};
use pagepool::{Arena, ArenaParams, Bound, PageBuf, Pool, PoolParams};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;

/// Number of pages: fewer than the tasks' queues hold, so that they can run out.
const PAGES: u64 = 32;
/// Most bytes per packet.
const ROOM: usize = 2048;

/// Buffers for packets.
pub enum Buffers {
    Pool(PoolBuffers),
    /// Parts of larger buffers, which `BytesMut` allocates, and frees with their last part.
    Own(BytesMut),
}

/// Pages of a pool.
pub struct PoolBuffers {
    pool: Bound,
    /// Readable when a page returns to an empty pool.
    woken: AsyncFd<OwnedFd>,
    waits: u64,
    /// A page for the next packet.
    next: Option<PageBuf>,
}

impl Buffers {
    /// Call this within a runtime.
    pub fn new(allocator: Allocator) -> Result<Self, Error> {
        if allocator == Allocator::Own {
            return Ok(Self::Own(BytesMut::new()));
        }
        let arena = Arena::new(ArenaParams { max_bytes: PAGES << 12, ..Default::default() })?;
        let pool = Pool::new(PoolParams { wakeup: true, max_len: ROOM, ..Default::default() }, arena)?.bind();
        let fd = pool.wake_fd().ok_or("the pool has no descriptor")?.try_clone_to_owned()?;
        // SAFETY: the `AsyncFd` owns the descriptor, which does not change until it is dropped.
        let woken = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self::Pool(PoolBuffers { pool, woken, waits: 0, next: None }))
    }

    /// Receives the next packet. Adds the ticks spent on its buffer to `spent`.
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

    /// How often no buffer was free.
    pub fn waits(&self) -> u64 {
        if let Self::Pool(buffers) = self { buffers.waits } else { 0 }
    }

    /// The number of buffers, and how many of them are free.
    pub fn close(self) -> Result<(u64, u64), Error> {
        let Self::Pool(PoolBuffers { pool, next, .. }) = self else { return Ok((0, 0)) };
        drop(next);
        let out = pool.inflight().out;
        let ended = pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok((PAGES, PAGES - out))
        } else {
            Err("the pool must end when its last buffer returns".into())
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
        let bytes = page.into_bytes(offset, len).expect("the packet lies in the page");
        *spent += ticks() - start;
        Ok(bytes)
    }

    /// Sleeps until a page returns. Acknowledges the wakeup before each attempt, never between a failed
    /// attempt and the sleep: that could lose the wakeup that should end the sleep.
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
