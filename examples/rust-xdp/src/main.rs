//! A forwarder with the crate xdp, whose frames come from a pool.
//!
//! The crate accepts only the memory that `Umem::map` maps. Its fill and completion rings use only the
//! UMEM's own list of free frames. So the pool lies over the UMEM's memory, and keeps it until the last page
//! returns. The list is empty except within a call to [`Frames`]. There, frames pass through the list, from
//! the pool to a fill ring or from a completion ring to the pool.
//!
//! The crate cannot share a UMEM between sockets. It can register the memory with each socket, so an offset
//! means the same page to both.

mod frames;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frames::Frames;
use lab::wire::{Closed, Forwarder};
use lab::{Allocator, Error, ticks};
use pagepool_net::{Attach, Redirect};
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{PollTimeout, XdpSocket, XdpSocketBuilder};
use xdp::umem::{Umem, UmemCfgBuilder};
use xdp::{RingConfigBuilder, WakableRings};

/// Frames in the UMEM.
const FRAMES: u32 = 4096;
/// Slots of each ring: the crate's default.
const RING: usize = 2048;
/// Packets per round.
const BATCH: usize = 64;

fn main() -> ExitCode {
    lab::main("xdp", 200_000, lab::wire::forward::<TwoPorts>)
}

/// One interface: its socket, the socket's rings, and how many frames they hold.
struct Port {
    rings: WakableRings,
    /// Frames on the fill ring or the receive ring.
    receiving: usize,
    /// Frames on the transmit ring or the completion ring.
    sending: usize,
    /// Dropped after the rings, which use it.
    socket: XdpSocket,
    /// The XDP program that redirects packets to the socket.
    _redirect: Arc<Redirect>,
}

impl Port {
    fn open(interface: &str, umem: &Umem) -> Result<Self, Error> {
        let name = std::ffi::CString::new(interface)?;
        let index = NicIndex::lookup_by_name(&name)?.ok_or("no such interface")?;
        let mut socket = XdpSocketBuilder::new()?;
        let (rings, mut flags) = socket.build_wakable_rings(umem, RingConfigBuilder::default().build()?)?;
        flags.force_copy();
        let socket = socket.bind(index, 0, flags)?;
        let redirect = Redirect::attach(interface, Attach::Auto, false)?;
        // SAFETY: the socket is open as long as it is borrowed.
        redirect.insert(0, unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) })?;
        Ok(Self { rings, receiving: 0, sending: 0, socket, _redirect: redirect })
    }

    /// Frees sent frames. Returns how many.
    fn complete(&mut self, frames: &mut Frames) -> usize {
        let count = frames.complete(&mut self.rings.completion_ring, BATCH);
        self.sending -= count;
        count
    }

    /// Refills the fill ring. Returns the number of frames.
    fn refill(&mut self, frames: &mut Frames) -> Result<usize, Error> {
        let count = frames.fill(&mut self.rings.fill_ring, (RING - self.receiving).min(BATCH))?;
        self.receiving += count;
        Ok(count)
    }

    fn receive(&mut self, umem: &Umem, batch: &mut HeapSlab) -> usize {
        let Some(ring) = &mut self.rings.rx_ring else { return 0 };
        // SAFETY: the packets go onto a ring or are freed, and the UMEM outlives both.
        let count = unsafe { ring.recv(umem, batch) };
        self.receiving -= count;
        count
    }

    /// Sends the batch if the ring has room. The rest stays in the batch.
    fn transmit(&mut self, batch: &mut HeapSlab) -> Result<(), Error> {
        let Some(ring) = &mut self.rings.tx_ring else { return Ok(()) };
        if batch.len() <= RING - self.sending {
            // SAFETY: the packets lie in the socket's UMEM, and nothing else uses them.
            self.sending += unsafe { ring.send(batch, false) }?;
        }
        self.flush()
    }

    /// Makes the kernel send from the transmit ring. A poll sends at most 32 packets.
    fn flush(&self) -> Result<(), Error> {
        if self.sending > 0 {
            self.socket.poll_write(PollTimeout::new(Some(Duration::ZERO)))?;
        }
        Ok(())
    }
}

/// Two ports over one UMEM. Each sends what the other received, without a copy in user space.
struct TwoPorts {
    ports: [Port; 2],
    frames: Frames,
    batch: HeapSlab,
    allocator_ticks: u64,
}

impl TwoPorts {
    /// Polls one port and sends its packets through the other. Returns whether there was work.
    fn round(&mut self, from: usize) -> Result<bool, Error> {
        let Self { ports, frames, batch, allocator_ticks } = self;
        let [one, other] = ports;
        let (from, to) = if from == 0 { (one, other) } else { (other, one) };
        let start = ticks();
        let done = to.complete(frames) + from.refill(frames)?;
        *allocator_ticks += if done > 0 { ticks() - start } else { 0 };
        let count = frames.with_umem(|umem| from.receive(umem, batch));
        to.transmit(batch)?;
        while let Some(dropped) = batch.pop_back() {
            frames.free(dropped);
        }
        Ok(count + done > 0)
    }
}

impl Forwarder for TwoPorts {
    fn open(interfaces: [&str; 2], allocator: Allocator) -> Result<Self, Error> {
        let umem = Umem::map(UmemCfgBuilder { frame_count: FRAMES, ..Default::default() }.build()?)?;
        let [one, other] = interfaces;
        let ports = [Port::open(one, &umem)?, Port::open(other, &umem)?];
        let frames = match allocator {
            Allocator::Pool => Frames::from_pool(umem)?,
            Allocator::Own => Frames::Own(umem),
        };
        let mut this = Self { ports, frames, batch: HeapSlab::with_capacity(BATCH), allocator_ticks: 0 };
        for port in &mut this.ports {
            while port.receiving < FRAMES as usize / 4 {
                port.refill(&mut this.frames)?;
            }
        }
        Ok(this)
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.round(0)? | self.round(1)?)
    }

    fn close(mut self) -> Result<Closed, Error> {
        let start = Instant::now();
        while self.ports.iter().any(|port| port.sending > 0) && start.elapsed() < Duration::from_secs(2) {
            for port in &mut self.ports {
                port.flush()?;
                port.complete(&mut self.frames);
            }
        }
        let on_rings = self.ports.iter().map(|port| port.receiving + port.sending).sum();
        drop(self.ports); // closes the sockets, which frees the frames on their rings
        let returned = self.frames.close(on_rings)?;
        Ok(Closed { buffers: FRAMES.into(), returned, allocator_ticks: self.allocator_ticks })
    }
}
