//! Sending by a BPF program ([`TxMode::BpfBatch`](super::params::TxMode)). In copy mode the kernel sends
//! packet by packet, and the receiving side runs after each. A BPF program sends many first, and the
//! receiving side gets them together.
//!
//! What   the other end of a [`Sender`](super::sender::Sender)'s rings, in our own memory. It takes packets,
//!        lets a tc program ([`bpf_run`](crate::bpf_run)) copy and send up to 64 per call, and completes
//!        them, because the kernel has copies.
//! Few    packets go through the socket's own rings: a call of the BPF program costs as much as some packets.
//!        So do packets that the program cannot send: in another network namespace than the interface's, on
//!        an interface that is down, or shorter than a header.
//! Order  the program runs only while the kernel's ring is empty. Its packets pass the interface's queueing
//!        discipline, which the ring bypasses. If there is one, or a filter, an nftables rule or a tap, few
//!        packets go by the program, too. [`EgressWatch`] finds these: `hear` runs before few packets go by
//!        the ring after others went by the program, `look` about every 10 ms.
//! Drops  by a queueing discipline, a filter, a rule or the receiver are in the results, and counted.
//! Who    the thread that polls the device. Each device has its own BPF program.
//! Cost   an entry is read three times, twice here and once by the BPF program. Its address is written once.

use std::io;
use std::os::fd::BorrowedFd;

use pagepool::Error;
use pagepool_link::LinkInfo;

use super::bpf::egress_watch::EgressWatch;
use super::descriptor::Descriptor;
use super::params::{TxMode, XskMode, XskParams};
use super::queue::Queue;
use super::sender::TxRings;
use super::sys::ring::{Consumer, Producer};
use super::sys::socket::{self, Mapped};
use super::tx_metadata::TxMetadataMode;
use super::umem::Umem;
use crate::bpf_run::program::{Copies, Direction, MOST};
use crate::bpf_run::{BpfRun, RunBatch};
use crate::device::Calls;
use crate::error::parameter;
use crate::sys::remedy::{failed, failed_unless};
use crate::sys::{capability, errno};

/// Fewest packets for a call of the program. Fewer are cheaper by the ring, and gain nothing together.
const LEAST: usize = 4;
/// Most bytes of a packet: a chunk.
const LONGEST: u32 = 4096;

#[derive(Debug)]
pub(super) struct BpfBatch {
    waiting: Consumer<Mapped, 2>,
    done: Producer<Mapped, 1>,
    /// The socket's own rings; before `swap_rings`, those for the sender.
    kernel: TxRings,
    /// The program, or why it no longer runs.
    program: Result<BpfRun, String>,
    /// What the ring bypasses. `None` if unknown: nothing goes by the ring.
    watch: Option<EgressWatch>,
    /// Whether the program sent something since the last `hear`.
    has_sent: bool,
}

impl BpfBatch {
    /// Loads a BPF program for a queue if the parameters want one; otherwise returns the reason. Not used if
    /// the driver turns out to work on the UMEM itself.
    pub(super) fn choose(
        params: &XskParams,
        umem: &Umem,
        queue: Queue,
        link: &LinkInfo,
    ) -> Result<(Option<Self>, Option<String>), Error> {
        let interface = &params.interface;
        match params.tx_mode {
            TxMode::Ring => return Ok((None, None)),
            TxMode::BpfBatch => check(params, umem, link)?,
            TxMode::Auto => {
                if umem.params().mode == XskMode::ZeroCopy || link.kind.as_deref() != Some("veth") {
                    return Ok((None, None));
                }
                if umem.params().multi_buffer {
                    return Ok((None, Some("packets may have several buffers".into())));
                }
                if umem.params().tx_metadata != TxMetadataMode::Off {
                    return Ok((None, Some("packets may carry requests in their metadata".into())));
                }
            }
        }
        let auto = params.tx_mode == TxMode::Auto;
        let watch = match EgressWatch::new(queue.index) {
            Ok((_, Some(what))) if auto => {
                return Ok((None, Some(format!("packets sent by {interface} pass {what}"))));
            }
            Err(error) if auto => {
                let why = format!("it is unknown what packets sent by {interface} pass: {error}");
                return Ok((None, Some(why)));
            }
            // Without a watch everything goes by the program.
            watch => watch.ok().map(|(watch, _)| watch),
        };
        let loaded = Self::new(params.tx_ring, queue, umem.base(), watch);
        match loaded {
            Err(error) if auto => Ok((None, Some(error.to_string()))),
            loaded => loaded.map(|loaded| (Some(loaded), None)),
        }
    }

    fn new(slots: u32, queue: Queue, memory: usize, watch: Option<EgressWatch>) -> Result<Self, Error> {
        let rings = || Ok((Mapped::pair::<2>(slots)?, Mapped::pair::<1>(slots)?));
        let ([to_send, waiting], [completed, done]) = rings().map_err(|source| {
            let remedy = format!("no memory for rings of {slots} entries: use a smaller tx_ring");
            failed("mmap", source, remedy)
        })?;
        let copies = Copies {
            direction: Direction::Out,
            namespace: Some(queue.namespace),
            index: queue.index,
            queue: queue.number,
            ring: to_send.address() as u64,
            memory: memory as u64,
            longest: LONGEST,
        };
        let program = Ok(BpfRun::load(&copies).map_err(|(call, error)| refused(call, error))?);
        let ours = TxRings { send: Producer::new(to_send, slots), done: Consumer::new(completed, slots) };
        let (waiting, done) = (Consumer::new(waiting, slots), Producer::new(done, slots));
        Ok(Self { waiting, done, kernel: ours, program, watch, has_sent: false })
    }

    /// Takes the socket's rings, and gives the sender its rings.
    pub(super) fn swap_rings(&mut self, rings: &mut TxRings) {
        std::mem::swap(&mut self.kernel, rings);
    }
}

fn check(params: &XskParams, umem: &Umem, link: &LinkInfo) -> Result<(), Error> {
    let refused = |why: &str| Err(parameter("tx_mode", "bpf-batch", format!("ring or auto {why}")));
    if umem.params().multi_buffer {
        return refused("if packets may have several buffers; or leave multi_buffer off");
    }
    if umem.params().tx_metadata != TxMetadataMode::Off {
        return refused("if packets may carry requests; or leave tx_metadata off");
    }
    if umem.params().mode == XskMode::ZeroCopy {
        return refused("with zero copy; or use XskMode::Copy");
    }
    if !link.is_ethernet {
        return refused(&format!("on {}, whose packets have no Ethernet header", params.interface));
    }
    Ok(())
}

fn refused(call: &'static str, source: io::Error) -> Error {
    let own = match source.raw_os_error() {
        Some(errno::EPERM) => Some(capability::remedy(capability::SEND_PROGRAM)),
        Some(errno::EINVAL) => {
            Some("BPF batch requires Linux 6.15 and CAP_PERFMON; the ring requires neither".into())
        }
        _ => None,
    };
    failed_unless(own, call, source, "the kernel refused the BPF program; the ring requires none")
}

impl BpfBatch {
    /// Sends as many waiting packets as possible. `kick` makes the kernel send the socket's ring. Both return
    /// whether the interface exists.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        calls: &mut Calls,
        mut kick: impl FnMut(&TxRings, &mut Calls) -> bool,
    ) -> bool {
        if self.program.is_ok() && !self.looks() {
            return false;
        }
        loop {
            let on_ring = self.kernel.send.level();
            if on_ring == 0 && self.run(socket, calls) {
                continue;
            }
            let waiting = self.waiting.peek(usize::MAX);
            if waiting > 0 && self.has_sent && self.mixes() {
                // On the ring they would overtake packets of a new queueing discipline.
                self.has_sent = false;
                if !self.hears() {
                    return false;
                }
                continue;
            }
            // If the ring bypasses something, it gets only the one packet that the program cannot send.
            let given = if self.mixes() || self.program.is_err() { waiting } else { waiting.min(1) };
            if on_ring + self.give(given) > 0 && !kick(&self.kernel, calls) {
                return false;
            }
            self.take_completed();
            if waiting == 0 || self.kernel.send.level() > 0 {
                return true; // all are on their way, or the kernel has no room: the next round tries again
            }
        }
    }

    /// Whether few packets go by the ring: it bypasses nothing.
    fn mixes(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| !watch.has_some())
    }

    /// Calls the watch's `look` if due. Returns whether the interface exists.
    fn looks(&mut self) -> bool {
        self.watch.as_mut().is_none_or(|watch| !watch.is_due() || watch.look())
    }

    fn hears(&mut self) -> bool {
        self.watch.as_mut().is_none_or(EgressWatch::hear)
    }

    /// Sends the first packets by the program, if enough wait. Returns whether it sent any.
    fn run(&mut self, socket: BorrowedFd<'_>, calls: &mut Calls) -> bool {
        let Ok(program) = &self.program else { return false };
        let waiting = self.waiting.peek(usize::MAX);
        let least = if self.mixes() { LEAST } else { 1 };
        let (first, unbroken) = self.waiting.first();
        let most = waiting.min(MOST).min(unbroken).min(self.done.room(MOST));
        let Some(batch) = self.batch(most).filter(|_| waiting >= least) else { return false };
        let result = calls.make(|| program.run(batch, first));
        let mut sent = match result {
            Ok(Some(sent)) => sent,
            // the thread stays in the other namespace: stop, instead of a failed call in each round
            Ok(None) => return self.stop("the device was polled in another network namespace".into()),
            Err(error) => match error.raw_os_error() {
                Some(errno::ENOMEM | errno::EINTR | errno::EAGAIN) => return false,
                _ => return self.stop(format!("the kernel refused to run the program: {error}")),
            },
        };
        // An empty kick shows whether the interface is down; if so, the packet stays. Otherwise its queueing
        // discipline dropped a packet, as it does if the other end is down.
        if sent.unknown && calls.make(|| socket::kick_transmit(socket)).is_ok() {
            (sent.done, sent.dropped) = (sent.done + 1, sent.dropped + 1);
        }
        calls.dropped += sent.dropped;
        // The kernel has copies, so all are done.
        pass(&mut self.waiting, &mut self.done, sent.done.min(batch.count), |[addr, _]| [addr]);
        self.has_sent |= sent.done > 0;
        sent.done > 0
    }

    #[cold]
    fn stop(&mut self, why: String) -> bool {
        self.program = Err(why);
        false
    }

    /// As many of the first `n` packets as one call sends.
    fn batch(&self, n: usize) -> Option<RunBatch> {
        let entry = self.waiting.look();
        RunBatch::of((0..n).map(|at| Descriptor::of_words(entry(at)).place()))
    }

    /// Gives the kernel up to `waiting` packets. Returns how many.
    fn give(&mut self, waiting: usize) -> usize {
        let n = waiting.min(self.kernel.send.room(waiting));
        pass(&mut self.waiting, &mut self.kernel.send, n, |entry| entry)
    }

    fn take_completed(&mut self) {
        let got = self.kernel.done.peek(usize::MAX);
        let n = got.min(self.done.room(got));
        pass(&mut self.kernel.done, &mut self.done, n, |entry| entry);
    }

    pub(super) fn stopped(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    /// Entries on the kernel's transmit ring, and on its completion ring.
    pub(super) fn kernel_levels(&self) -> (usize, usize) {
        (self.kernel.send.level(), self.kernel.done.level())
    }
}

/// Moves `n` entries, for which there is room, to another ring. Returns how many it published.
#[inline(always)]
fn pass<const FROM: usize, const TO: usize>(
    from: &mut Consumer<Mapped, FROM>,
    to: &mut Producer<Mapped, TO>,
    n: usize,
    entry_of: impl Fn([u64; FROM]) -> [u64; TO],
) -> usize {
    let entry = from.read(n);
    (0..n).for_each(|at| to.push(entry_of(entry(at))));
    from.release();
    to.submit()
}
