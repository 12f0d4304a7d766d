//! Sending by a program: in copy mode the kernel sends the transmit ring packet by packet, and after each the receiving side has
//! its turn; a program that it runs over many packets puts them all on their way before that.
//!
//! What   the other end of the rings of a [`Sender`](super::sender::Sender), where otherwise the kernel's is: takes what is to be
//!        sent, has a program of the traffic control's ([`bpf::send`]) copy and send up to 64 packets by one call, and completes
//!        them, for the kernel has copies. The rings lie in memory of ours, and the kernel has no part in them.
//! Few    packets go the kernel's way, over the socket's own rings: a call of the program costs as much as two packets. So does
//!        what the program cannot send: in another network namespace than the interface's, on an interface that is down, shorter
//!        than a header. The program runs only while nothing is on that ring, so packets stay in order.
//! Who    the thread that polls the device; each device has a program of its own.
//! Cost   an entry is read twice, by the program and to complete it, and its address written once.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use pagepool::Error;

use super::bpf::{self, ELSEWHERE, MOST, SCRATCH, UNKNOWN};
use super::capability;
use super::ring::{Consumer, Producer};
use super::sender::TxRings;
use super::sys::socket::{self, Mapped, errno};
use super::umem::Queue;
use crate::device::Calls;
use crate::sys::bpf as sys;

/// Packets from which on a call of the program is cheaper than as many sent by the kernel.
const LEAST: usize = 4;
/// The packet that the program writes over begins as this: addresses that nobody has, and a type for experiments.
const BLANK: [u8; 64] = {
    let mut frame = [0; 64];
    (frame[12], frame[13]) = (0x88, 0xb5);
    frame
};

/// Sends what is put on the rings that come with it.
#[derive(Debug)]
pub(super) struct SendProgram {
    waiting: Consumer<Mapped, 2>,
    done: Producer<Mapped, 1>,
    /// The socket's own rings.
    kernel: TxRings,
    /// `None` once it was called in another network namespace, or the kernel refused to run it.
    program: Option<OwnedFd>,
}

/// A program and the rings that it sends from.
#[derive(Debug)]
pub(super) struct Loaded {
    slots: u32,
    to_send: [Mapped; 2],
    completed: [Mapped; 2],
    program: OwnedFd,
}

impl Loaded {
    /// Loads a program for a queue, and makes rings of so many slots; `memory` is where the UMEM begins.
    pub(super) fn new(slots: u32, queue: Queue, memory: usize) -> Result<Self, Error> {
        let make = || {
            let (to_send, completed) = (Mapped::pair::<2>(slots)?, Mapped::pair::<1>(slots)?);
            let program = load(queue, &to_send[0], memory)?;
            Ok(Self { slots, to_send, completed, program })
        };
        make().map_err(refused)
    }

    /// Puts it in the place of the rings of a socket, and gives those for a sender.
    pub(super) fn over(self, kernel: TxRings) -> (SendProgram, TxRings) {
        let Self { slots, to_send: [to_send, waiting], completed: [completed, done], program } = self;
        let (waiting, done) = (Consumer::new(waiting, slots), Producer::new(done, slots));
        let ours = TxRings { send: Producer::new(to_send, slots), done: Consumer::new(completed, slots) };
        (SendProgram { waiting, done, kernel, program: Some(program) }, ours)
    }
}

impl SendProgram {
    /// Sends what waits, as much of it as goes; `kick` has the kernel send what is on the ring of the socket, and says whether
    /// there still is an interface.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        calls: &mut Calls,
        mut kick: impl FnMut(&TxRings, &mut Calls) -> bool,
    ) -> bool {
        loop {
            let on_ring = self.kernel.send.level();
            let waiting = self.waiting.peek(usize::MAX);
            let sent = if on_ring == 0 && waiting >= LEAST { self.run(waiting, socket, calls) } else { 0 };
            if sent > 0 {
                continue;
            }
            if on_ring + self.give(waiting) > 0 && !kick(&self.kernel, calls) {
                return false;
            }
            self.take_completed();
            if waiting == 0 || self.kernel.send.level() > 0 {
                return true; // all is on its way, or the kernel has no room now: the next round tries again
            }
        }
    }

    /// Has the program send the first of so many packets; says how many.
    fn run(&mut self, waiting: usize, socket: BorrowedFd<'_>, calls: &mut Calls) -> usize {
        let Some(program) = self.program.as_ref().map(|program| program.as_fd()) else { return 0 };
        let (first, unbroken) = self.waiting.first();
        let most = waiting.min(MOST).min(unbroken).min(self.done.room(MOST));
        let words = [first, most as u32];
        let sent = match calls.make(|| sys::run_packet(program, &BLANK, words)) {
            Ok(ELSEWHERE) => {
                self.program = None; // a thread that was moved once is not to be asked each time
                return 0;
            }
            // A socket that has nothing to send says whether the interface is down. Then it was not sent.
            Ok(sent) if sent & UNKNOWN != 0 => {
                let is_down = calls.make(|| socket::kick_transmit(socket)).is_err();
                (sent - UNKNOWN) as usize + usize::from(!is_down)
            }
            Ok(sent) => sent as usize,
            Err(error) => {
                let is_passing =
                    matches!(error.raw_os_error(), Some(errno::ENOMEM | errno::EINTR | errno::EAGAIN));
                self.program = self.program.take().filter(|_| is_passing);
                return 0;
            }
        };
        let sent = sent.min(most);
        let entry = self.waiting.read(sent);
        (0..sent).for_each(|at| self.done.push([entry(at)[0]]));
        self.waiting.release();
        self.done.submit();
        sent
    }

    /// Gives the kernel so many packets, or as many as it has room for; says how many.
    fn give(&mut self, waiting: usize) -> usize {
        let n = waiting.min(self.kernel.send.room(waiting));
        let entry = self.waiting.read(n);
        (0..n).for_each(|at| self.kernel.send.push(entry(at)));
        self.waiting.release();
        self.kernel.send.submit()
    }

    /// Passes on what the kernel sent.
    fn take_completed(&mut self) {
        let got = self.kernel.done.peek(usize::MAX);
        let n = got.min(self.done.room(got));
        let entry = self.kernel.done.read(n);
        (0..n).for_each(|at| self.done.push(entry(at)));
        self.kernel.done.release();
        self.done.submit();
    }

    /// Whether it sends more than a few packets by the program.
    pub(super) fn is_used(&self) -> bool {
        self.program.is_some()
    }

    /// Entries on the kernel's transmit ring, and on its completion ring.
    pub(super) fn kernel_levels(&self) -> (usize, usize) {
        (self.kernel.send.level(), self.kernel.done.level())
    }
}

fn load(queue: Queue, ring: &Mapped, memory: usize) -> std::io::Result<OwnedFd> {
    let scratch = sys::create_scratch(SCRATCH)?; // the program keeps it
    let sends = bpf::Sends {
        namespace: queue.namespace,
        interface: queue.index,
        queue: queue.number,
        ring: ring.address() as u64,
        memory: memory as u64,
        scratch: scratch.as_raw_fd(),
    };
    sys::load(&bpf::send(sends), sys::Kind::Packet)
}

fn refused(source: std::io::Error) -> Error {
    let remedy = match source.raw_os_error() {
        Some(errno::EPERM) => capability::remedy(capability::SEND_PROGRAM),
        Some(errno::EINVAL) => "it needs Linux 6.15, and CAP_PERFMON: give that, or send by the ring".into(),
        _ => "the kernel refused it: send by the ring".into(),
    };
    Error::System { call: "bpf(BPF_PROG_LOAD)", remedy, source }
}
