//! A forwarder with the crate xsk-rs, whose frames come from a pool.
//!
//! The crate accepts only the memory that `Umem::new` maps. So the pool lies over that memory, and keeps the
//! UMEM until the last page returns. A page's device address is its offset in the UMEM, as on the rings. The
//! crate cannot make a `FrameDesc` from an address, so the example keeps the descriptor of each page.

mod frames;

use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frames::Frames;
use lab::wire::{Closed, Forwarder};
use lab::{Allocator, Error, ticks};
use pagepool_net::{Attach, Redirect};
use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, SocketConfig, UmemConfig};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

/// Frames in the UMEM.
const FRAMES: u32 = 4096;
/// Slots of each ring: the crate's default.
const RING: usize = 2048;
/// Packets per round.
const BATCH: usize = 64;

fn main() -> ExitCode {
    lab::main("xsk-rs", 200_000, lab::wire::forward::<TwoPorts>)
}

/// One interface: the rings of its socket, and how many frames they hold.
struct Port {
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    done: CompQueue,
    /// Frames on the fill ring or the receive ring.
    receiving: usize,
    /// Frames on the transmit ring or the completion ring.
    sending: usize,
    /// The XDP program that redirects packets to the socket.
    _redirect: Arc<Redirect>,
}

impl Port {
    fn open(interface: &str, umem: &Umem) -> Result<Self, Error> {
        let config = SocketConfig::builder()
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP)
            .build();
        let name: Interface = interface.parse()?;
        // SAFETY: this is the only socket on that queue of the interface.
        let (tx, rx, rings) = unsafe { Socket::new(config, umem, &name, 0) }?;
        let (fill, done) = rings.ok_or("the socket has no fill and completion rings")?;
        let redirect = Redirect::attach(interface, Attach::Auto, false)?;
        // SAFETY: `rx` keeps the socket open.
        let socket = unsafe { BorrowedFd::borrow_raw(rx.fd().as_raw_fd()) };
        redirect.insert(0, socket)?;
        Ok(Self { tx, rx, fill, done, receiving: 0, sending: 0, _redirect: redirect })
    }

    /// Frees sent frames. Returns how many.
    fn complete(&mut self, frames: &mut Frames, batch: &mut [FrameDesc]) -> usize {
        // SAFETY: the descriptors belong to this UMEM, or are overwritten.
        let count = unsafe { self.done.consume(batch) };
        self.sending -= count;
        frames.free(&batch[..count]);
        count
    }

    /// Refills the fill ring. Returns the number of frames.
    fn refill(&mut self, frames: &mut Frames, batch: &mut [FrameDesc]) -> usize {
        let room = (RING - self.receiving).min(batch.len());
        let count = frames.take(&mut batch[..room]);
        // SAFETY: the frames belong to this UMEM, and nothing else uses them.
        let filled = unsafe { self.fill.produce(&batch[..count]) };
        self.receiving += filled;
        frames.free(&batch[filled..count]); // none: there was room
        filled
    }

    fn receive(&mut self, batch: &mut [FrameDesc]) -> usize {
        // SAFETY: the descriptors are overwritten.
        let count = unsafe { self.rx.consume(batch) };
        self.receiving -= count;
        count
    }

    /// Sends the frames that fit. Returns how many.
    fn transmit(&mut self, batch: &[FrameDesc]) -> Result<usize, Error> {
        let room = (RING - self.sending).min(batch.len());
        // SAFETY: the frames were received into this UMEM, and nothing else uses them.
        let sent = unsafe { self.tx.produce(&batch[..room]) };
        self.sending += sent;
        if self.sending > 0 && self.tx.needs_wakeup() {
            self.tx.wakeup()?;
        }
        Ok(sent)
    }
}

/// Two ports over one UMEM. Each sends what the other received, without a copy in user space.
struct TwoPorts {
    ports: [Port; 2],
    frames: Frames,
    batch: Vec<FrameDesc>,
    allocator_ticks: u64,
}

impl TwoPorts {
    /// Polls one port and sends its packets through the other. Returns whether there was work.
    fn round(&mut self, from: usize) -> Result<bool, Error> {
        let Self { ports, frames, batch, allocator_ticks } = self;
        let [one, other] = ports;
        let (from, to) = if from == 0 { (one, other) } else { (other, one) };
        let start = ticks();
        let done = to.complete(frames, batch) + from.refill(frames, batch);
        *allocator_ticks += if done > 0 { ticks() - start } else { 0 };
        let count = from.receive(batch);
        let sent = to.transmit(&batch[..count])?;
        frames.free(&batch[sent..count]); // drops what was not sent
        Ok(count + done > 0)
    }
}

impl Forwarder for TwoPorts {
    fn open(interfaces: [&str; 2], allocator: Allocator) -> Result<Self, Error> {
        let count = NonZeroU32::new(FRAMES).ok_or("the UMEM has no frames")?;
        let (umem, descs) = Umem::new(UmemConfig::default(), count, false)?;
        let [one, other] = interfaces;
        let ports = [Port::open(one, &umem)?, Port::open(other, &umem)?];
        let frames = match allocator {
            Allocator::Pool => Frames::from_pool(umem, descs)?,
            Allocator::Own => Frames::Own(descs),
        };
        let mut this = Self { ports, frames, batch: vec![FrameDesc::default(); BATCH], allocator_ticks: 0 };
        for port in &mut this.ports {
            while port.receiving < FRAMES as usize / 4 {
                port.refill(&mut this.frames, &mut this.batch);
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
                port.transmit(&[])?;
                port.complete(&mut self.frames, &mut self.batch);
            }
        }
        let on_rings = self.ports.iter().map(|port| port.receiving + port.sending).sum();
        drop(self.ports); // closes the sockets, which frees the frames on their rings
        let returned = self.frames.close(on_rings)?;
        Ok(Closed { buffers: FRAMES.into(), returned, allocator_ticks: self.allocator_ticks })
    }
}
