//! A forwarder by the crate xsk-rs, whose frames come from a pool of pagepool.
//!
//! The memory is xsk-rs's: `Umem::new` maps it, and nothing else can be given to it. So the pool goes over
//! that memory, and keeps the UMEM until its last page is home. A page's device address is its offset there,
//! which is what rings carry; the crate makes no `FrameDesc` of an address, so the ones that it made are
//! kept, one for each page.

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

/// Frames of the UMEM.
const FRAMES: u32 = 4096;
/// Slots of each ring: the crate's default.
const RING: usize = 2048;
/// Packets of one round.
const BATCH: usize = 64;

fn main() -> ExitCode {
    lab::main("xsk-rs", 200_000, lab::wire::forward::<Between>)
}

/// One interface: the rings of its socket, and how many frames they have.
struct Port {
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    done: CompQueue,
    /// Frames on the fill ring or the receive ring.
    receiving: usize,
    /// Frames on the transmit ring or the completion ring.
    sending: usize,
    /// The XDP program that gives the socket its packets.
    _redirect: Arc<Redirect>,
}

impl Port {
    fn open(interface: &str, umem: &Umem) -> Result<Self, Error> {
        let config = SocketConfig::builder()
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP)
            .build();
        let name: Interface = interface.parse()?;
        // SAFETY: this is the only socket of that queue of the interface.
        let (tx, rx, rings) = unsafe { Socket::new(config, umem, &name, 0) }?;
        let (fill, done) = rings.ok_or("the first socket of a queue brings its fill and completion rings")?;
        let redirect = Redirect::attach(interface, Attach::Auto, false)?;
        // SAFETY: the socket is open as long as `rx` is there.
        let socket = unsafe { BorrowedFd::borrow_raw(rx.fd().as_raw_fd()) };
        redirect.insert(0, socket)?;
        Ok(Self { tx, rx, fill, done, receiving: 0, sending: 0, _redirect: redirect })
    }

    /// What was sent goes home; says how many.
    fn complete(&mut self, frames: &mut Frames, batch: &mut [FrameDesc]) -> usize {
        // SAFETY: the descriptors are of this UMEM, or overwritten.
        let count = unsafe { self.done.consume(batch) };
        self.sending -= count;
        frames.give(&batch[..count]);
        count
    }

    /// Frames for what is to come; says how many.
    fn refill(&mut self, frames: &mut Frames, batch: &mut [FrameDesc]) -> usize {
        let room = (RING - self.receiving).min(batch.len());
        let count = frames.take(&mut batch[..room]);
        // SAFETY: the frames are of this UMEM, and nobody else has them.
        let filled = unsafe { self.fill.produce(&batch[..count]) };
        self.receiving += filled;
        frames.give(&batch[filled..count]); // none: there was room
        filled
    }

    fn receive(&mut self, batch: &mut [FrameDesc]) -> usize {
        // SAFETY: the descriptors are overwritten.
        let count = unsafe { self.rx.consume(batch) };
        self.receiving -= count;
        count
    }

    /// Sends them, or as many as there is room for; says how many.
    fn transmit(&mut self, batch: &[FrameDesc]) -> Result<usize, Error> {
        let room = (RING - self.sending).min(batch.len());
        // SAFETY: the frames were received into this UMEM, and nobody else has them.
        let sent = unsafe { self.tx.produce(&batch[..room]) };
        self.sending += sent;
        if self.sending > 0 && self.tx.needs_wakeup() {
            self.tx.wakeup()?;
        }
        Ok(sent)
    }
}

/// Two ports over one UMEM: what one received the other sends, without a copy in user space.
struct Between {
    ports: [Port; 2],
    frames: Frames,
    batch: Vec<FrameDesc>,
    allocator_ticks: u64,
}

impl Between {
    /// One round at a port; what it received goes out by the other. Says whether there was anything to do.
    fn round(&mut self, from: usize) -> Result<bool, Error> {
        let Self { ports, frames, batch, allocator_ticks } = self;
        let [one, other] = ports;
        let (from, to) = if from == 0 { (one, other) } else { (other, one) };
        let start = ticks();
        let done = to.complete(frames, batch) + from.refill(frames, batch);
        *allocator_ticks += if done > 0 { ticks() - start } else { 0 };
        let count = from.receive(batch);
        let sent = to.transmit(&batch[..count])?;
        frames.give(&batch[sent..count]); // dropped
        Ok(count + done > 0)
    }
}

impl Forwarder for Between {
    fn open(interfaces: [&str; 2], allocator: Allocator) -> Result<Self, Error> {
        let count = NonZeroU32::new(FRAMES).ok_or("there are frames")?;
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
        drop(self.ports); // closes the sockets: the frames that are still on their rings are ours again
        let home = self.frames.close(on_rings)?;
        Ok(Closed { buffers: FRAMES.into(), home, allocator_ticks: self.allocator_ticks })
    }
}
