//! The program: copies packets of this process into the kernel, and lets it send or receive them.
//!
//! ```text
//! copies:
//!   r6 = r1                       ; struct __sk_buff: one packet, rewritten for each entry; copies are sent
//!   call bpf_get_netns_cookie     ; helper 122: of the thread that calls
//!   r1 = namespace ll
//!   if r0 != r1 goto elsewhere    ; an interface's index means another interface there
//!   r1 = queue + 1
//!   *(u32 *)(r6 + 12) = r1        ; queue_mapping
//!   r8 = *(u32 *)(r6 + 52)        ; cb[1]: entries, which do not wrap around the ring's end
//!   r9 = 0                        ; entries that are done
//!   *(u64 *)(r10 - 8) = 0         ; those of them that were dropped
//!   if r8 > 64 goto out
//!   r2 = r8
//!   r2 <<= 4                      ; bytes of an entry
//!   r1 = scratch ll
//!   r3 = *(u32 *)(r6 + 48)        ; cb[0]: the first entry
//!   r3 <<= 4
//!   r4 = ring ll
//!   r3 += r4
//!   call bpf_probe_read_user      ; helper 112: all entries
//!   if r0 != 0 goto out
//! next:
//!   if r9 >= r8 goto out
//!   if r9 == 64 goto out
//!   r4 = r9
//!   r4 <<= 4
//!   r1 = scratch ll
//!   r1 += r4
//!   r7 = *(u32 *)(r1 + 8)         ; its packet's length
//!   if r7 > longest goto out
//!   if r7 < 14 goto out
//!   r3 = *(u64 *)(r1 + 0)         ; its packet's place
//!   r4 = memory ll
//!   r3 += r4
//!   r1 = scratch + 1024 ll
//!   r2 = r7
//!   call bpf_probe_read_user      ; the packet
//!   if r0 != 0 goto out
//!   r1 = *(u32 *)(r6 + 0)         ; len
//!   if r1 == r7 goto write
//!   r1 = r6
//!   r2 = r7
//!   r3 = 0
//!   call bpf_skb_change_tail      ; helper 38
//!   if r0 != 0 goto out
//! write:
//!   r1 = r6
//!   r2 = 0
//!   r3 = scratch + 1024 ll
//!   r4 = r7
//!   r5 = 0
//!   call bpf_skb_store_bytes      ; helper 9
//!   if r0 != 0 goto out
//!   r1 = r6
//!   r2 = interface
//!   r3 = direction                ; 0: it sends them; 1 (BPF_F_INGRESS): its stack receives them
//!   call bpf_clone_redirect       ; helper 13
//!   if r0 s< 0 goto out
//!   if r0 == 2 goto unknown       ; NET_XMIT_CN: a queue dropped a packet, or the interface is down
//!   r9 += 1
//!   if r0 == 0 goto next
//!   r1 = *(u64 *)(r10 - 8)        ; NET_XMIT_DROP: it was dropped
//!   r1 += 1
//!   *(u64 *)(r10 - 8) = r1
//!   goto next
//! unknown:
//!   r9 |= 0x10000
//! out:
//!   r0 = *(u64 *)(r10 - 8)
//!   r0 <<= 8
//!   r0 |= r9
//!   exit
//! elsewhere:
//!   r0 = -1
//!   exit
//! ```
//!
//! `bpf_get_netns_cookie` here requires Linux 6.15. On older kernels the program cannot know that a thread is
//! in another network namespace than the interface: without a cookie, the lines about it are left out, and
//! the caller must check.

use crate::sys::bpf::assembler::{
    ADD, ADD_IMM, Code, IF_ABOVE_IMM, IF_BELOW_IMM, IF_EQUAL, IF_EQUAL_IMM, IF_NEGATIVE, IF_NOT_BELOW,
    IF_NOT_EQUAL, IF_NOT_EQUAL_IMM, JUMP, LEAVE, LOAD_LONG, LOAD_WORD, MAP_VALUE, OR, OR_IMM, SHIFT_LEFT_IMM,
    STACK, STORE_LONG, STORE_LONG_IMM, STORE_WORD, call, copy, load_64, load_64_as, op, set,
};
use crate::sys::bpf::{Insn, OWN_WORDS};

/// Offsets in `struct __sk_buff`.
const LEN: i16 = 0;
const QUEUE_MAPPING: i16 = 12;
const FIRST: i16 = 4 * OWN_WORDS as i16;
const COUNT: i16 = FIRST + 4;
/// The place of the number of dropped packets, below the frame pointer.
const DROPPED: i16 = -8;
/// The result if a queue had no room for this packet or another one, or is off.
const NET_XMIT_CN: i32 = 2;
/// Numbers of helpers.
const SKB_STORE_BYTES: i32 = 9;
const CLONE_REDIRECT: i32 = 13;
const SKB_CHANGE_TAIL: i32 = 38;
const PROBE_READ_USER: i32 = 112;
const GET_NETNS_COOKIE: i32 = 122;

/// Most packets per call: as many as an interface receives in one poll. Linux: `NAPI_POLL_WEIGHT`.
pub(crate) const MOST: usize = 64;
/// Fewest bytes of a packet: an Ethernet header.
pub(crate) const SHORTEST: u32 = pagepool::ETH_HEADER as u32;
/// Bytes of an entry, as a shift, and of a call's entries.
const ENTRY_SHIFT: i32 = 4;
const ENTRIES: i32 = (MOST as i32) << ENTRY_SHIFT;
/// Set in the result if it is unknown whether one more was sent.
const UNKNOWN: u32 = 1 << 16;
/// The result for a thread in another network namespace.
const ELSEWHERE: u32 = u32::MAX;
/// The shift of the number of dropped packets, and the mask of both numbers.
const DROPPED_SHIFT: i32 = 8;
const NUMBER: u32 = 0xff;
const _: () = assert!(MOST <= NUMBER as usize);

/// The result of a call of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchResult {
    /// Entries that are done.
    pub(crate) done: usize,
    /// Those of them that a queueing discipline, the receiver, or a full backlog dropped.
    pub(crate) dropped: u64,
    /// It stopped at an entry, which was dropped if the interface is up, and not sent if it is down.
    pub(crate) unknown: bool,
}

impl BatchResult {
    /// Reads the result; `None` for a thread in another network namespace.
    pub(crate) fn of(result: u32) -> Option<Self> {
        (result != ELSEWHERE).then_some(Self {
            done: (result & NUMBER) as usize,
            dropped: u64::from(result >> DROPPED_SHIFT & NUMBER),
            unknown: result & UNKNOWN != 0,
        })
    }
}

/// What the kernel does with the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The interface sends them.
    Out = 0,
    /// The interface's stack receives them. Linux: `BPF_F_INGRESS`.
    Up = 1,
}

/// Parameters of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    pub(crate) direction: Direction,
    /// The cookie of the interface's network namespace; `None`: the program does not check it.
    pub(crate) namespace: Option<u64>,
    /// The interface, and the queue that packets are of.
    pub(crate) index: u32,
    pub(crate) queue: u32,
    /// The address of the ring.
    pub(crate) ring: u64,
    /// The address that those in entries are relative to.
    pub(crate) memory: u64,
    /// Most bytes of a packet.
    pub(crate) longest: u32,
}

impl Copies {
    /// Bytes of the scratch memory: the entries, and a packet.
    pub(super) fn scratch(&self) -> u32 {
        ENTRIES as u32 + self.longest
    }
}

/// The program. `scratch`: a map with one element of [`Copies::scratch`] bytes.
pub(super) fn assemble(what: &Copies, scratch: i32) -> Vec<Insn> {
    let mut code = Code::default();
    code.extend([copy(6, 1)]);
    if let Some(namespace) = what.namespace {
        code.extend([call(GET_NETNS_COOKIE)]);
        code.extend(load_64(1, namespace));
        code.jump(Label::Elsewhere, op(IF_NOT_EQUAL, 0, 1, 0, 0));
    }
    code.extend([
        set(1, what.queue as i32 + 1),
        op(STORE_WORD, 6, 1, QUEUE_MAPPING, 0),
        op(LOAD_WORD, 8, 6, COUNT, 0),
        set(9, 0),
        op(STORE_LONG_IMM, STACK, 0, DROPPED, 0),
    ]);
    read_entries(&mut code, what, scratch);
    code.mark(Label::Next);
    code.jump(Label::Out, op(IF_NOT_BELOW, 9, 8, 0, 0));
    code.jump(Label::Out, op(IF_EQUAL_IMM, 9, 0, 0, MOST as i32));
    read_packet(&mut code, what, scratch);
    write_packet(&mut code, scratch);
    redirect(&mut code, what);
    code.mark(Label::Out);
    code.extend([op(LOAD_LONG, 0, STACK, DROPPED, 0), op(SHIFT_LEFT_IMM, 0, 0, 0, DROPPED_SHIFT)]);
    code.extend([op(OR, 0, 9, 0, 0), LEAVE]);
    if what.namespace.is_some() {
        code.mark(Label::Elsewhere);
        code.extend([set(0, ELSEWHERE as i32), LEAVE]);
    }
    code.finish()
}

fn read_entries(code: &mut Code<Label>, what: &Copies, scratch: i32) {
    code.jump(Label::Out, op(IF_ABOVE_IMM, 8, 0, 0, MOST as i32));
    code.extend([copy(2, 8), op(SHIFT_LEFT_IMM, 2, 0, 0, ENTRY_SHIFT)]);
    code.extend(in_scratch(1, scratch, 0));
    code.extend([op(LOAD_WORD, 3, 6, FIRST, 0), op(SHIFT_LEFT_IMM, 3, 0, 0, ENTRY_SHIFT)]);
    code.extend(load_64(4, what.ring));
    code.extend([op(ADD, 3, 4, 0, 0), call(PROBE_READ_USER)]);
    code.jump(Label::Out, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
}

/// Copies a packet to the scratch memory, and its length to r7. No helper copies it directly.
fn read_packet(code: &mut Code<Label>, what: &Copies, scratch: i32) {
    code.extend([copy(4, 9), op(SHIFT_LEFT_IMM, 4, 0, 0, ENTRY_SHIFT)]);
    code.extend(in_scratch(1, scratch, 0));
    code.extend([op(ADD, 1, 4, 0, 0), op(LOAD_WORD, 7, 1, 8, 0)]);
    code.jump(Label::Out, op(IF_ABOVE_IMM, 7, 0, 0, what.longest as i32));
    code.jump(Label::Out, op(IF_BELOW_IMM, 7, 0, 0, SHORTEST as i32));
    code.extend([op(LOAD_LONG, 3, 1, 0, 0)]);
    code.extend(load_64(4, what.memory));
    code.extend([op(ADD, 3, 4, 0, 0)]);
    code.extend(in_scratch(1, scratch, ENTRIES));
    code.extend([copy(2, 7), call(PROBE_READ_USER)]);
    code.jump(Label::Out, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
}

/// Overwrites the kernel's packet.
fn write_packet(code: &mut Code<Label>, scratch: i32) {
    code.extend([op(LOAD_WORD, 1, 6, LEN, 0)]);
    code.jump(Label::Write, op(IF_EQUAL, 1, 7, 0, 0));
    code.extend([copy(1, 6), copy(2, 7), set(3, 0), call(SKB_CHANGE_TAIL)]);
    code.jump(Label::Out, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
    code.mark(Label::Write);
    code.extend([copy(1, 6), set(2, 0)]);
    code.extend(in_scratch(3, scratch, ENTRIES));
    code.extend([copy(4, 7), set(5, 0), call(SKB_STORE_BYTES)]);
    code.jump(Label::Out, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
}

/// Gives a copy to the interface, and counts it.
fn redirect(code: &mut Code<Label>, what: &Copies) {
    code.extend([copy(1, 6), set(2, what.index as i32)]);
    code.extend([set(3, what.direction as i32), call(CLONE_REDIRECT)]);
    code.jump(Label::Out, op(IF_NEGATIVE, 0, 0, 0, 0));
    code.jump(Label::Unknown, op(IF_EQUAL_IMM, 0, 0, 0, NET_XMIT_CN));
    code.extend([op(ADD_IMM, 9, 0, 0, 1)]);
    code.jump(Label::Next, op(IF_EQUAL_IMM, 0, 0, 0, 0));
    code.extend([op(LOAD_LONG, 1, STACK, DROPPED, 0), op(ADD_IMM, 1, 0, 0, 1)]);
    code.extend([op(STORE_LONG, STACK, 1, DROPPED, 0)]);
    code.jump(Label::Next, op(JUMP, 0, 0, 0, 0));
    code.mark(Label::Unknown);
    code.extend([op(OR_IMM, 9, 0, 0, UNKNOWN as i32)]);
}

fn in_scratch(to: u8, scratch: i32, offset: i32) -> [Insn; 2] {
    load_64_as(to, MAP_VALUE, [scratch, offset])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Next,
    Write,
    Out,
    Unknown,
    Elsewhere,
}
