//! Where provided buffers come from: a pool, or a fixed set.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use lab::{Allocator, Error};
use pagepool::{
    Arena, ArenaParams, Bound, DeviceAddr, DmaDomain, OffsetDomain, PAGE_SIZE, PageBuf, Pool, PoolParams,
    PoolRef,
};

/// Number of buffers; few, so that they run out.
pub const PAGES: usize = 128;

/// Free and provided buffers.
pub enum Buffers {
    Pool(PoolBuffers),
    Own(OwnBuffers),
}

/// Pages of a pool.
pub struct PoolBuffers {
    pool: Bound,
    pool_ref: PoolRef,
    /// Address of the first page; device addresses count from there.
    base: u64,
}

/// A fixed set. Used buffers return over a channel.
pub struct OwnBuffers {
    free: Vec<(u16, Box<[u8]>)>,
    provided: Vec<Option<Box<[u8]>>>,
    returned: Receiver<(u16, Box<[u8]>)>,
    returns: Sender<(u16, Box<[u8]>)>,
}

/// A buffer that the kernel has filled. It may move to any thread.
pub enum Buffer {
    Page(PageBuf),
    Own(u16, Box<[u8]>, Sender<(u16, Box<[u8]>)>),
}

impl Buffer {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Page(page) => page.bytes().unwrap_or_default(),
            Self::Own(_, bytes, _) => bytes,
        }
    }

    pub fn free(self) {
        match self {
            Self::Page(page) => drop(page),
            Self::Own(number, bytes, returns) => drop(returns.send((number, bytes))), // fails after `close`
        }
    }
}

impl Buffers {
    pub fn new(allocator: Allocator) -> Result<Self, Error> {
        if allocator == Allocator::Own {
            let free = (0..PAGES as u16).map(|number| (number, vec![0; PAGE_SIZE].into())).collect();
            let (returns, returned) = mpsc::channel();
            let provided = (0..PAGES).map(|_| None).collect();
            return Ok(Self::Own(OwnBuffers { free, provided, returned, returns }));
        }
        let params =
            ArenaParams { max_bytes: (PAGES * PAGE_SIZE) as u64, commit_all: true, ..Default::default() };
        let arena = Arena::new(params)?;
        let base = pagepool::Provider::area(&*arena).base().ok_or("the arena has no address")? as u64;
        let domains: Vec<Arc<dyn DmaDomain>> = vec![Arc::new(OffsetDomain::new("provided"))];
        let pool = Pool::new(PoolParams { domains, wakeup: true, ..Default::default() }, arena)?.bind();
        Ok(Self::Pool(PoolBuffers { pool_ref: pool.handle(), pool, base }))
    }

    /// Takes a buffer to provide. Returns its address, length and number.
    pub fn provide(&mut self) -> Option<(u64, u32, u16)> {
        match self {
            Self::Pool(buffers) => {
                let raw = buffers.pool.alloc_page()?.into_raw().ok()?;
                Some((buffers.base + raw.addr.0, raw.len, (raw.addr.0 / PAGE_SIZE as u64) as u16))
            }
            Self::Own(buffers) => {
                buffers.free.extend(buffers.returned.try_iter());
                let (number, mut bytes) = buffers.free.pop()?;
                let (at, len) = (bytes.as_mut_ptr() as u64, bytes.len() as u32);
                buffers.provided[usize::from(number)] = Some(bytes);
                Some((at, len, number))
            }
        }
    }

    /// The buffer that the kernel took. Fails and changes nothing if the number is not provided.
    pub fn take(&mut self, number: u16) -> Result<Buffer, Error> {
        match self {
            Self::Pool(buffers) => {
                let page = buffers.pool_ref.from_raw(DeviceAddr(u64::from(number) * PAGE_SIZE as u64))?;
                Ok(Buffer::Page(page))
            }
            Self::Own(buffers) => {
                let bytes = buffers.provided.get_mut(usize::from(number)).and_then(Option::take);
                Ok(Buffer::Own(number, bytes.ok_or("the buffer is not provided")?, buffers.returns.clone()))
            }
        }
    }

    /// The descriptor to sleep on if no buffer is free. If `None`, call [`wait`](Self::wait).
    pub fn wake_fd(&self) -> Option<RawFd> {
        let Self::Pool(buffers) = self else { return None };
        buffers.pool.wake_fd().map(|fd| fd.as_raw_fd())
    }

    /// Call this after a sleep, before the next [`provide`](Self::provide).
    pub fn acknowledge_wake(&self) {
        if let Self::Pool(buffers) = self {
            buffers.pool.acknowledge_wake();
        }
    }

    /// Sleeps until a buffer returns.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if let Self::Own(buffers) = self {
            buffers.free.push(buffers.returned.recv_timeout(timeout)?);
        }
        Ok(())
    }

    /// Call this once the ring is gone; `provided` buffers were still provided. Returns how many are free.
    pub fn close(self, provided: usize) -> Result<u64, String> {
        match self {
            Self::Pool(buffers) => buffers.close(provided),
            Self::Own(buffers) => {
                Ok((buffers.free.len() + provided + buffers.returned.try_iter().count()) as u64)
            }
        }
    }
}

impl PoolBuffers {
    /// The pool refuses pages that are not out, so it accepts exactly the provided ones.
    fn close(self, provided: usize) -> Result<u64, String> {
        let addresses = (0..PAGES).map(|page| DeviceAddr((page * PAGE_SIZE) as u64));
        let returned = addresses.filter(|&addr| self.pool_ref.from_raw(addr).is_ok()).count();
        if returned != provided {
            return Err(format!("{provided} buffers were provided, but {returned} were out"));
        }
        let out = self.pool.inflight().out;
        let ended = self.pool.destroy().is_complete();
        if ended == (out == 0) {
            Ok(PAGES as u64 - out)
        } else {
            Err("the pool must end when its last buffer returns".into())
        }
    }
}
