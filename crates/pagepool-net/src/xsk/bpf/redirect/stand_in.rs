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
//!   r2 = *(u32 *)(r6 + 140)         ; struct __sk_buff: data_meta
//!   r3 = *(u32 *)(r6 + 76)          ; data
//!   r1 = r2 + 4
//!   if r1 > r3 goto next
//!   r1 = *(u32 *)(r2 + 0)
//!   if r1 != mark goto next
//!   r7 = *(u32 *)(r6 + 164)         ; gso_segs: packets that the kernel merged (GRO), 0 if it is one
//!   r2 = r7
//!   if r2 != 0 goto count
//!   r2 = 1
//! count:
//!   r1 = count ll
//!   lock *(u64 *)(r1 + 0) += r2
//!   ...                             ; drop, send if it is not too long, or send back
//! next:
//!   r0 = -1                         ; TCX_NEXT: other programs, then the stack
//!   exit
//! ```
//!
//! Why    not XDP_REDIRECT: a veth takes a frame that was redirected to it only if its peer polls (NAPI), and
//!        a card's driver only if it has XDP transmit queues. The traffic control sends by every driver, with
//!        tags and checksums that are not in the bytes.
//! Mark   a random number for each stand-in, so that the metadata of others is not taken for it.
//! Order  the program of the traffic control is attached first and detached last, after a grace period: a
//!        packet that was marked finds it, unless it waits for longer between both, in a backlog (RPS) or for
//!        GRO.
//! Who    any thread, in the interface's network namespace.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagepool::Error;

use super::refusal::{not_steered, refused as xdp_refused};
use super::{Ours, Redirect};
use crate::link::lookup;
use crate::sys::bpf::{self as sys, Insn, Kind};
use crate::sys::errno;
use crate::sys::remedy::failed;
use crate::xsk::bpf::assembler::{
    ADD_IMM, ATOMIC_ADD_LONG, Code, IF_ABOVE, IF_EQUAL_IMM, IF_NOT_EQUAL_32, IF_NOT_EQUAL_IMM, JUMP, LEAVE,
    LOAD_WORD, MAP_VALUE, STORE_LONG_IMM, STORE_WORD_IMM, call, copy, load_64_as, op, set,
};
use crate::xsk::bpf::program::{RX_QUEUE_INDEX, SKB_STORE_BYTES, STACK, XDP_PASS, pass};
use crate::xsk::bpf::rx_metadata::{ADJUST_META, DATA as XDP_DATA, DATA_META as XDP_DATA_META, random_mark};
use crate::xsk::bpf::steer::steer;
use crate::xsk::grace_period::GracePeriod;

/// Offsets in `struct __sk_buff`.
const IFINDEX: i16 = 40;
const DATA: i16 = 76;
const DATA_META: i16 = 140;
const GSO_SEGS: i16 = 164;
/// Verdicts.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
/// Helpers.
const REDIRECT: i32 = 23;
const SKB_LOAD_BYTES: i32 = 26;
const CHECK_MTU: i32 = 163;
/// Looks at the packets that one was merged of. Linux: `BPF_MTU_CHK_SEGS`.
const OF_SEGMENTS: i32 = 1;
/// Bytes of a VLAN tag: the kernel takes the outer one out, and another one may be longer than the MTU, too.
const TAG: i32 = 4;
/// Bytes of the mark.
const LEN: i32 = 4;
/// Where below the frame pointer the two addresses of a packet are, or the MTU.
const ADDRESSES: i32 = -16;
const MTU: i32 = -8;
/// Bytes of an address.
const ADDRESS: i32 = 6;

/// What the kernel does with a packet in place of a socket's owner: see [`Redirect::stand_in`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Drops it.
    Drop,
    /// Sends it back with its MAC addresses exchanged, as after [`swap_macs`](crate::swap_macs).
    Echo,
    /// Sends it out of the interface of this name, unchanged. Drops it if it is longer than the MTU there.
    SendTo(String),
}

/// Does something with the packets of a [`Redirect`] while no socket gets them; made by
/// [`Redirect::stand_in`]. Dropping it ends that: then packets go to the stack, or, after
/// [`Redirect::start`], to the sockets. That takes two grace periods of the kernel's, some tens of
/// milliseconds.
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
    /// the queues still, and this one takes them over. Without it they go to the stack from the
    /// [`stop`](Self::stop) of the other to the [`start`](Self::start) here. Takes the packets that match, if
    /// this is [steered](Self::steer).
    ///
    /// [Start](StandIn::start) the stand-in, and then tell the other process to end. Open the devices, which
    /// waits until that one has closed its sockets; start this, and drop the stand-in. So each packet goes to
    /// the sockets of the other process, to the stand-in, or to the sockets of this one. Packets that the
    /// stand-in sends may overtake those that the other process has still.
    ///
    /// Requires Linux 6.6 with `CONFIG_NET_XGRESS`, and what [`load`](Self::load) requires. Where the driver
    /// has no room for metadata before packets, they go to the stack, and nobody says so. Not for a program
    /// in a [chain](Self::load_beside), nor for the map of another program. Any thread, in the interface's
    /// network namespace; a grace period of the kernel's.
    ///
    /// ```no_run
    /// // It needs root and interfaces.
    /// use pagepool_net::{Attach, InPlace, Redirect};
    /// let redirect = Redirect::load_pinned("eth1", Attach::Auto, false, "/sys/fs/bpf/eth1")?;
    /// let stand_in = redirect.stand_in(&[0, 1], &InPlace::SendTo("eth2".into()))?;
    /// stand_in.start()?;
    /// // Tell the other process to end, open the devices, give them buffers, and then:
    /// redirect.start()?;
    /// println!("the kernel sent {} packets meanwhile", stand_in.end());
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn stand_in(self: &Arc<Self>, queues: &[u32], does: &InPlace) -> Result<StandIn, Error> {
        StandIn::load(self, queues, does)
    }

    /// Its programs, if they are attached by a link here.
    fn own_link(&self) -> Result<&Ours, Error> {
        self.ours.as_ref().ok_or_else(|| Error::Unsupported {
            what: "a stand-in for the map of another XDP program, or for one in a chain".into(),
        })
    }
}

impl Ours {
    /// Loads an XDP program for what matches.
    fn load_in_place(&self, taken: &[Insn]) -> Result<OwnedFd, Error> {
        let (Kind::Xdp { frags } | Kind::XdpOf { frags, .. }) = self.kind else {
            unreachable!("it is an XDP program")
        };
        match &self.lock().by {
            None => sys::load(taken, self.kind).map_err(|e| xdp_refused("bpf(BPF_PROG_LOAD)", e, frags)),
            Some(by) => sys::load(&steer(by, taken), self.kind).map_err(|e| not_steered(by, e)),
        }
    }

    /// Has it run in place of whatever runs, unless the one that redirects does.
    fn run_in_place(&self, program: &OwnedFd) -> Result<(), Error> {
        let redirecting = self.lock();
        if redirecting.runs {
            let what = format!("packets of {} are redirected to sockets: stop that first", self.interface);
            return Err(Error::Busy { what });
        }
        self.exchange(&redirecting, program)
    }

    /// Has packets go to the stack if this program runs.
    fn pass_again(&self, program: &OwnedFd) {
        let _locked = self.lock();
        if let Some(attached) = self.attached.get() {
            // Fails if another one runs, which stays.
            let _ = sys::exchange(attached.link.as_fd(), self.passing.as_fd(), Some(program.as_fd()));
        }
    }
}

impl StandIn {
    fn load(redirect: &Arc<Redirect>, queues: &[u32], does: &InPlace) -> Result<Self, Error> {
        let ours = redirect.own_link()?;
        let mark = random_mark();
        let marking = ours.load_in_place(&mark_packets(queues, mark))?;
        let count = sys::create_scratch(8).map_err(|source| refused("bpf(BPF_MAP_CREATE)", source))?;
        let program = sys::load(&act(does, mark, count.as_raw_fd())?, Kind::Packet);
        let program = program.map_err(|source| refused("bpf(BPF_PROG_LOAD)", source))?;
        let acting = sys::attach_to_ingress(program.as_fd(), ours.index);
        let acting = acting.map_err(|source| not_attached(&ours.interface, source))?;
        Ok(Self { redirect: redirect.clone(), marking, acting, count, started: AtomicBool::new(false) })
    }

    /// From now on the kernel does so with packets, also where the program of another process redirected them
    /// until now, by a link that both [use](Redirect::load_pinned). An error while the program of the own
    /// [`Redirect`] redirects.
    pub fn start(&self) -> Result<(), Error> {
        self.redirect.own_link()?.run_in_place(&self.marking)?;
        self.started.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Packets that it had until now, with those that it dropped. A system call; any thread.
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
            self.redirect.ours.iter().for_each(|ours| ours.pass_again(&self.marking));
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
    find_mark(&mut code, [XDP_DATA_META, XDP_DATA]);
    code.extend([op(STORE_WORD_IMM, 2, 0, 0, mark as i32)]);
    code.mark(Target::Left);
    code.extend([set(0, XDP_PASS), LEAVE]);
    code.finish()
}

/// Has r2 point to the mark before a packet whose context is in r6; goes on only if there is room for one.
/// The places of `data_meta` and `data` are those of the context.
fn find_mark(code: &mut Code<Target>, [meta, data]: [i16; 2]) {
    code.extend([op(LOAD_WORD, 2, 6, meta, 0), op(LOAD_WORD, 3, 6, data, 0)]);
    code.extend([copy(1, 2), op(ADD_IMM, 1, 0, 0, LEN)]);
    code.jump(Target::Left, op(IF_ABOVE, 1, 3, 0, 0));
}

/// The program of the traffic control that does something with packets of this mark, and counts them.
fn act(does: &InPlace, mark: u32, count: i32) -> Result<Vec<Insn>, Error> {
    let mut code = Code::default();
    code.extend([copy(6, 1)]);
    find_mark(&mut code, [DATA_META, DATA]);
    code.extend([op(LOAD_WORD, 1, 2, 0, 0)]);
    code.jump(Target::Left, op(IF_NOT_EQUAL_32, 1, 0, 0, mark as i32));
    code.extend([op(LOAD_WORD, 7, 6, GSO_SEGS, 0), copy(2, 7)]);
    code.jump(Target::Counted, op(IF_NOT_EQUAL_IMM, 2, 0, 0, 0));
    code.extend([set(2, 1)]);
    code.mark(Target::Counted);
    code.extend(load_64_as(1, MAP_VALUE, [count, 0]));
    code.extend([op(ATOMIC_ADD_LONG, 1, 2, 0, 0)]);
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
            check_length(&mut code, index);
            code.extend([set(1, index as i32), set(2, 0), call(REDIRECT), LEAVE]);
            code.mark(Target::Dropped);
            code.extend(dropped);
        }
    }
    code.mark(Target::Left);
    code.extend([set(0, TCX_NEXT), LEAVE]);
    Ok(code.finish())
}

/// Goes on only if a packet is not longer than the MTU of an interface, nor one that it was merged of, whose
/// number is in r7.
fn check_length(code: &mut Code<Target>, index: u32) {
    code.extend([op(STORE_LONG_IMM, STACK, 0, MTU as i16, 0), copy(1, 6), set(2, index as i32)]);
    code.extend([copy(3, STACK), op(ADD_IMM, 3, 0, 0, MTU), set(4, -TAG), set(5, 0)]);
    code.jump(Target::Asked, op(IF_EQUAL_IMM, 7, 0, 0, 0));
    code.extend([set(4, 0), set(5, OF_SEGMENTS)]);
    code.mark(Target::Asked);
    code.extend([call(CHECK_MTU)]);
    code.jump(Target::Dropped, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
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

/// A place that is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Taken,
    Counted,
    Asked,
    Dropped,
    Left,
}

fn refused(call: &'static str, source: std::io::Error) -> Error {
    failed(call, source, "the kernel refuses a program of the traffic control")
}

fn not_attached(interface: &str, source: std::io::Error) -> Error {
    let remedy = match source.raw_os_error() {
        Some(errno::EINVAL) => {
            "tcx, which attaches programs of the traffic control by a link, requires Linux 6.6 with \
             CONFIG_NET_XGRESS"
                .into()
        }
        _ => format!("the program could not be attached to the ingress of {interface}"),
    };
    failed("bpf(BPF_LINK_CREATE)", source, remedy)
}
