//! What the kernel does with packets while no socket gets them: between two runs, of which the second takes
//! the queues over from the first. A queue has one UMEM at a time, so in between it has none, for tens of
//! milliseconds.
//!
//! What   two BPF programs for an interface. An XDP program marks the packets that sockets would get, and
//!        passes all; one of the traffic control takes what is marked, before other programs there.
//!
//! ```text
//! mark:                             ; for packets that match
//!   r6 = r1
//!   r2 = *(u32 *)(r1 + 16)          ; struct xdp_md: rx_queue_index
//!   if r2 == queue goto marked      ; for each queue
//!   goto pass
//! marked:
//!   r1 = r6
//!   r2 = -4
//!   call bpf_xdp_adjust_meta        ; helper 54
//!   if r0 != 0 goto pass            ; the driver has no room for metadata
//!   r2 = *(u32 *)(r6 + 8)           ; data_meta
//!   r3 = *(u32 *)(r6 + 0)           ; data
//!   r1 = r2 + 4
//!   if r1 > r3 goto pass
//!   *(u32 *)(r2 + 0) = mark
//! pass:
//!   r0 = 2                          ; XDP_PASS
//!   exit
//!
//! act:
//!   r6 = r1
//!   r2 = *(u32 *)(r1 + 140)         ; struct __sk_buff: data_meta
//!   r3 = *(u32 *)(r1 + 76)          ; data
//!   r1 = r2 + 4
//!   if r1 > r3 goto next
//!   r1 = *(u32 *)(r2 + 0)
//!   if r1 != mark goto next
//!   r1 = count ll
//!   r2 = 1
//!   lock *(u64 *)(r1 + 0) += r2
//!   ...                             ; drop, send, or send back
//! next:
//!   r0 = -1                         ; TCX_NEXT: other programs, then the stack
//!   exit
//! ```
//!
//! Why    not XDP_REDIRECT: a veth takes a frame that was redirected to it only if its peer polls (NAPI), and
//!        a driver only with queues of its own for that. The traffic control sends by every driver, with tags
//!        and checksums that are not in the bytes.
//! Mark   a random number of this value's: nobody else's metadata is taken for it.
//! Order  the program of the traffic control is attached first and detached last, after a grace period: a
//!        packet that was marked finds it.
//! Who    any thread, in the interface's network namespace.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagepool::Error;

use super::Redirect;
use super::refusal::{not_steered, refused as xdp_refused};
use crate::link::lookup;
use crate::sys::bpf::{self as sys, Insn};
use crate::sys::{capability, errno};
use crate::xsk::bpf::assembler::{
    ADD_IMM, ATOMIC_ADD_LONG, Code, IF_ABOVE, IF_EQUAL_IMM, IF_NOT_EQUAL_32, IF_NOT_EQUAL_IMM, JUMP, LEAVE,
    LOAD_WORD, MAP_VALUE, STORE_WORD_IMM, call, copy, load_64_as, op, set,
};
use crate::xsk::bpf::program::pass;
use crate::xsk::bpf::steer::steer;
use crate::xsk::grace_period::GracePeriod;

/// Offsets in `struct xdp_md`.
const XDP_DATA: i16 = 0;
const XDP_DATA_META: i16 = 8;
const RX_QUEUE_INDEX: i16 = 16;
/// Offsets in `struct __sk_buff`.
const IFINDEX: i16 = 40;
const DATA: i16 = 76;
const DATA_META: i16 = 140;
/// Verdicts.
const XDP_PASS: i32 = 2;
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
/// Helpers.
const SKB_STORE_BYTES: i32 = 9;
const REDIRECT: i32 = 23;
const SKB_LOAD_BYTES: i32 = 26;
const ADJUST_META: i32 = 54;
/// Bytes of the mark.
const LEN: i32 = 4;
/// The frame pointer, and where below it the two addresses of a packet are.
const STACK: u8 = 10;
const ADDRESSES: i32 = -16;
/// Bytes of an address.
const ADDRESS: i32 = 6;

/// What the kernel does with a packet in place of a socket's owner: see [`Redirect::stand_in`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Drops it.
    Drop,
    /// Sends it back with its MAC addresses exchanged, as after [`swap_macs`](crate::swap_macs).
    Echo,
    /// Sends it out of the interface of this name, unchanged.
    SendTo(String),
}

/// Does something with the packets of a [`Redirect`] while no socket gets them; made by
/// [`Redirect::stand_in`]. Dropping it ends that: then packets go to the stack, or, after
/// [`Redirect::start`], to the sockets. Dropped after a start, it takes a grace period of the kernel's, about
/// 10 ms.
#[derive(Debug)]
pub struct StandIn {
    redirect: Arc<Redirect>,
    /// The XDP program.
    marking: OwnedFd,
    /// The program of the traffic control, attached.
    acting: OwnedFd,
    count: OwnedFd,
    started: AtomicBool,
}

impl Redirect {
    /// What the kernel does with packets of these queues while no socket gets them: where another process has
    /// the queues still, and this one takes them over. [`Redirect::stop`] of the other alone has them go to
    /// the stack until the [`start`](Self::start) here. Takes the packets that match, if this is
    /// [steered](Self::steer).
    ///
    /// [Start](StandIn::start) it just when the other process is told to end, and drop it after the start of
    /// this one: each packet goes to the sockets of the other, to the stand-in, or to the sockets of this
    /// one. Packets that the stand-in sends may overtake those that the other process has still.
    ///
    /// Requires Linux 6.6, a driver with room for metadata before packets (others pass packets to the stack),
    /// and what [`load`](Self::load) requires. Not for a program in a [chain](Self::load_beside), nor for the
    /// map of another one. Any thread, in the interface's network namespace; some system calls.
    ///
    /// ```no_run
    /// // It needs root and interfaces.
    /// use pagepool_net::{Attach, InPlace, Redirect};
    /// let redirect = Redirect::load_pinned("eth1", Attach::Auto, false, "/sys/fs/bpf/eth1")?;
    /// let stand_in = redirect.stand_in(&[0, 1], &InPlace::SendTo("eth2".into()))?;
    /// // Tell the other process to end, and then:
    /// stand_in.start()?;
    /// // Open the devices, give them buffers, and then:
    /// redirect.start()?;
    /// println!("the kernel sent {} packets meanwhile", stand_in.packets());
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn stand_in(self: &Arc<Self>, queues: &[u32], does: &InPlace) -> Result<StandIn, Error> {
        StandIn::load(self, queues, does)
    }

    /// Loads an XDP program for what matches.
    fn load_in_place(&self, taken: &[Insn]) -> Result<OwnedFd, Error> {
        let Some(ours) = &self.ours else { return Err(not_ours()) };
        let by = ours.lock().by.clone();
        match &by {
            None => {
                sys::load(taken, ours.kind).map_err(|error| xdp_refused("bpf(BPF_PROG_LOAD)", error, false))
            }
            Some(by) => {
                let program = sys::load(&steer(by, taken), ours.kind);
                program.map_err(|source| not_steered(by, source))
            }
        }
    }

    /// Has it run in place of whatever runs, unless the one that redirects does.
    fn run_in_place(&self, program: &OwnedFd) -> Result<(), Error> {
        let Some(ours) = &self.ours else { return Err(not_ours()) };
        let redirecting = ours.lock();
        if redirecting.runs {
            let what = format!("packets of {} are redirected to sockets: stop that first", ours.interface);
            return Err(Error::Busy { what });
        }
        ours.exchange(&redirecting, program)
    }

    /// Has packets go to the stack if this program runs.
    fn pass_again(&self, program: &OwnedFd) {
        let Some(ours) = &self.ours else { return };
        let _locked = ours.lock();
        if let Some(attached) = ours.attached.get() {
            // Fails if another one runs, which stays.
            let _ = sys::exchange(attached.link.as_fd(), ours.passing.as_fd(), Some(program.as_fd()));
        }
    }
}

impl StandIn {
    fn load(redirect: &Arc<Redirect>, queues: &[u32], does: &InPlace) -> Result<Self, Error> {
        let Some((interface, index)) = redirect.interface() else {
            let what = "a stand-in for the map of another XDP program, which decides by itself".into();
            return Err(Error::Unsupported { what });
        };
        let mark = RandomState::new().hash_one(index) as u32 | 1; // an odd one is not 0
        let marking = redirect.load_in_place(&mark_packets(queues, mark))?;
        let count = sys::create_scratch(8).map_err(|source| refused("bpf(BPF_MAP_CREATE)", source))?;
        let program = sys::load(&act(does, mark, count.as_raw_fd())?, sys::Kind::Packet);
        let program = program.map_err(|source| refused("bpf(BPF_PROG_LOAD)", source))?;
        let acting = sys::attach_to_ingress(program.as_fd(), index);
        let acting = acting.map_err(|source| not_attached(interface, source))?;
        Ok(Self { redirect: redirect.clone(), marking, acting, count, started: AtomicBool::new(false) })
    }

    /// From now on the kernel does so with packets, also where the program of another process redirected them
    /// until now, by a link that both [use](Redirect::load_pinned). Refused where this one's redirects.
    pub fn start(&self) -> Result<(), Error> {
        self.redirect.run_in_place(&self.marking)?;
        self.started.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Packets that it had until now. A system call; any thread.
    pub fn packets(&self) -> u64 {
        sys::read_long(self.count.as_fd()).unwrap_or(0)
    }

    /// Ends it, as dropping it does; says how many packets it had.
    pub fn end(mut self) -> u64 {
        self.pass();
        self.packets()
    }

    /// Marks no more packets, and waits for those that are marked and have not come to the other program yet.
    /// If it cannot be waited for, those few go to the stack.
    fn pass(&mut self) {
        if std::mem::take(self.started.get_mut()) {
            self.redirect.pass_again(&self.marking);
            GracePeriod::new().wait();
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.pass();
        // Also where a child between `fork` and `exec` has the descriptor.
        let _ = sys::detach(self.acting.as_fd());
    }
}

/// The XDP program that marks packets of these queues.
fn mark_packets(queues: &[u32], mark: u32) -> Vec<Insn> {
    if queues.is_empty() {
        return pass().to_vec(); // the kernel takes no program with instructions that nothing reaches
    }
    let mut code = Code::default();
    code.extend([copy(6, 1), op(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0)]);
    for &queue in queues {
        code.jump(Target::Taken, op(IF_EQUAL_IMM, 2, 0, 0, queue as i32));
    }
    code.jump(Target::Left, op(JUMP, 0, 0, 0, 0));
    code.mark(Target::Taken);
    code.extend([copy(1, 6), set(2, -LEN), call(ADJUST_META)]);
    code.jump(Target::Left, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
    code.extend([op(LOAD_WORD, 2, 6, XDP_DATA_META, 0), op(LOAD_WORD, 3, 6, XDP_DATA, 0)]);
    code.extend([copy(1, 2), op(ADD_IMM, 1, 0, 0, LEN)]);
    code.jump(Target::Left, op(IF_ABOVE, 1, 3, 0, 0));
    code.extend([op(STORE_WORD_IMM, 2, 0, 0, mark as i32)]);
    code.mark(Target::Left);
    code.extend([set(0, XDP_PASS), LEAVE]);
    code.finish()
}

/// The program of the traffic control that does something with packets of this mark, and counts them.
fn act(does: &InPlace, mark: u32, count: i32) -> Result<Vec<Insn>, Error> {
    let mut code = Code::default();
    code.extend([copy(6, 1), op(LOAD_WORD, 2, 1, DATA_META, 0), op(LOAD_WORD, 3, 1, DATA, 0)]);
    code.extend([copy(1, 2), op(ADD_IMM, 1, 0, 0, LEN)]);
    code.jump(Target::Left, op(IF_ABOVE, 1, 3, 0, 0));
    code.extend([op(LOAD_WORD, 1, 2, 0, 0)]);
    code.jump(Target::Left, op(IF_NOT_EQUAL_32, 1, 0, 0, mark as i32));
    code.extend(load_64_as(1, MAP_VALUE, [count, 0]));
    code.extend([set(2, 1), op(ATOMIC_ADD_LONG, 1, 2, 0, 0)]);
    let dropped = [set(0, TCX_DROP), LEAVE];
    match does {
        InPlace::Drop => code.extend(dropped),
        InPlace::Echo => {
            exchange_addresses(&mut code);
            code.extend([op(LOAD_WORD, 1, 6, IFINDEX, 0), set(2, 0), call(REDIRECT), LEAVE]);
            code.mark(Target::Dropped);
            code.extend(dropped);
        }
        InPlace::SendTo(interface) => {
            let index = lookup::look_up(interface)?.index;
            code.extend([set(1, index as i32), set(2, 0), call(REDIRECT), LEAVE]);
        }
    }
    code.mark(Target::Left);
    code.extend([set(0, TCX_NEXT), LEAVE]);
    Ok(code.finish())
}

/// Exchanges the MAC addresses of a packet.
fn exchange_addresses(code: &mut Code<Target>) {
    let on_stack = |register, at| [copy(register, STACK), op(ADD_IMM, register, 0, 0, at)];
    code.extend([copy(1, 6), set(2, 0)]);
    code.extend(on_stack(3, ADDRESSES));
    code.extend([set(4, 2 * ADDRESS), call(SKB_LOAD_BYTES)]);
    code.jump(Target::Dropped, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
    for (to, from) in [(0, ADDRESS), (ADDRESS, 0)] {
        code.extend([copy(1, 6), set(2, to)]);
        code.extend(on_stack(3, ADDRESSES + from));
        code.extend([set(4, ADDRESS), set(5, 0), call(SKB_STORE_BYTES)]);
        code.jump(Target::Dropped, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
    }
}

fn not_ours() -> Error {
    Error::Unsupported { what: "a stand-in for an XDP program that is not attached by a link here".into() }
}

/// A place that is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Taken,
    Dropped,
    Left,
}

fn refused(call: &'static str, source: std::io::Error) -> Error {
    let remedy = match source.raw_os_error() {
        Some(errno::EPERM) => capability::remedy(capability::PROGRAM),
        _ => "the kernel refuses a program of the traffic control".into(),
    };
    Error::System { call, remedy, source }
}

fn not_attached(interface: &str, source: std::io::Error) -> Error {
    let remedy = match source.raw_os_error() {
        Some(errno::EPERM) => capability::remedy(capability::PROGRAM),
        Some(errno::EINVAL) => {
            "a program of the traffic control that goes with its process requires Linux 6.6, with \
             CONFIG_NET_XGRESS"
                .into()
        }
        _ => format!("the program could not be attached to the ingress of {interface}"),
    };
    Error::System { call: "bpf(BPF_LINK_CREATE)", remedy, source }
}
