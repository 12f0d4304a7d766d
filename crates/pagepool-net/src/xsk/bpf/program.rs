//! Our BPF programs: one redirects packets to sockets, one passes all packets, one sends many packets per
//! call.
//!
//! ```text
//! redirect:
//!   r2 = *(u32 *)(r1 + 16)        ; struct xdp_md: rx_queue_index
//!   r1 = map_fd ll                ; the map from queues to sockets (two instructions' room)
//!   r3 = 2                        ; XDP_PASS, if the queue has no socket
//!   call bpf_redirect_map         ; helper 51
//!   exit                          ; with what it says
//! ```
//!
//! A queue without a socket passes its packets to the stack. This verdict, in the flags' lower bits, requires
//! Linux 5.3.
//!
//! ```text
//! send:
//!   r6 = r1                       ; struct __sk_buff: one packet, rewritten for each entry; copies are sent
//!   call bpf_get_netns_cookie     ; helper 122: of the thread that calls
//!   r1 = namespace ll
//!   if r0 != r1 goto elsewhere    ; an interface's number is another one's there
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
//!   if r7 > 4096 goto out
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
//!   r3 = 0
//!   call bpf_clone_redirect       ; helper 13
//!   if r0 s< 0 goto out
//!   if r0 == 2 goto unknown       ; NET_XMIT_CN: a queue dropped it or another, or the interface is down
//!   r9 += 1
//!   if r0 == 0 goto next
//!   r1 = *(u64 *)(r10 - 8)        ; NET_XMIT_DROP: nobody gets it
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
//! `bpf_get_netns_cookie` here requires Linux 6.15. Before, nothing shows that a thread is in another network
//! namespace than the interface.

use super::assembler::{
    ADD, ADD_IMM, Code, IF_ABOVE_IMM, IF_BELOW_IMM, IF_EQUAL, IF_EQUAL_IMM, IF_NEGATIVE, IF_NOT_BELOW,
    IF_NOT_EQUAL, IF_NOT_EQUAL_IMM, JUMP, LEAVE, LOAD_LONG, LOAD_WORD, MAP_FD, MAP_VALUE, OR, OR_IMM,
    SHIFT_LEFT_IMM, STORE_LONG, STORE_LONG_IMM, STORE_WORD, call, copy, load_64, load_64_as, op, set,
};
use crate::sys::bpf::{Insn, OWN_WORDS};
use crate::xsk::queue::Queue;

/// `offsetof(struct xdp_md, rx_queue_index)`.
pub(super) const RX_QUEUE_INDEX: i16 = 16;
/// Offsets in `struct __sk_buff`.
const LEN: i16 = 0;
const QUEUE_MAPPING: i16 = 12;
const FIRST: i16 = 4 * OWN_WORDS as i16;
const COUNT: i16 = FIRST + 4;
pub(super) const XDP_PASS: i32 = 2;
/// The frame pointer, and the place of the number of dropped packets.
pub(super) const STACK: u8 = 10;
const DROPPED: i16 = -8;
/// The result if a queue had no room for this packet or another one, or is off.
const NET_XMIT_CN: i32 = 2;
/// Numbers of helpers.
pub(super) const SKB_STORE_BYTES: i32 = 9;
const CLONE_REDIRECT: i32 = 13;
const SKB_CHANGE_TAIL: i32 = 38;
const REDIRECT_MAP: i32 = 51;
const PROBE_READ_USER: i32 = 112;
const GET_NETNS_COOKIE: i32 = 122;

/// Most packets per call: as many as an interface receives in one poll. Linux: `NAPI_POLL_WEIGHT`.
pub(in crate::xsk) const MOST: usize = 64;
/// Bytes of a packet: at least an Ethernet header, at most a chunk.
pub(in crate::xsk) const SHORTEST: u32 = pagepool::ETH_HEADER as u32;
const LONGEST: i32 = 4096;
/// Bytes of an entry, as a shift, and of a call's entries.
const ENTRY_SHIFT: i32 = 4;
const ENTRIES: i32 = (MOST as i32) << ENTRY_SHIFT;
/// Bytes of the scratch memory: the entries, and a packet.
pub(in crate::xsk) const SCRATCH: u32 = (ENTRIES + LONGEST) as u32;
/// Set in the result if it is unknown whether one more was sent.
const UNKNOWN: u32 = 1 << 16;
/// The result for a thread in another network namespace.
const ELSEWHERE: u32 = u32::MAX;
/// The shift of the number of dropped packets, and the mask of both numbers.
const DROPPED_SHIFT: i32 = 8;
const NUMBER: u32 = 0xff;
const _: () = assert!(MOST <= NUMBER as usize);

/// The result of a call of the sending program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xsk) struct BatchResult {
    /// Entries that are done.
    pub(in crate::xsk) done: usize,
    /// Those of them that a queueing discipline or the receiver dropped.
    pub(in crate::xsk) dropped: u64,
    /// It stopped at an entry, which was dropped if the interface is up, and not sent if it is down.
    pub(in crate::xsk) unknown: bool,
}

impl BatchResult {
    /// Reads the result; `None` for a thread in another network namespace.
    pub(in crate::xsk) fn of(result: u32) -> Option<Self> {
        (result != ELSEWHERE).then_some(Self {
            done: (result & NUMBER) as usize,
            dropped: u64::from(result >> DROPPED_SHIFT & NUMBER),
            unknown: result & UNKNOWN != 0,
        })
    }
}

pub(in crate::xsk) fn redirect(map: i32) -> [Insn; 6] {
    let [map, rest] = load_64_as(1, MAP_FD, [map, 0]);
    [op(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0), map, rest, set(3, XDP_PASS), call(REDIRECT_MAP), LEAVE]
}

pub(in crate::xsk) fn pass() -> [Insn; 2] {
    [set(0, XDP_PASS), LEAVE]
}

#[derive(Clone, Copy, Debug)]
pub(in crate::xsk) struct Sends {
    pub(in crate::xsk) queue: Queue,
    /// The address of the ring.
    pub(in crate::xsk) ring: u64,
    /// The address of the memory with packets.
    pub(in crate::xsk) memory: u64,
    /// A map of one element of [`SCRATCH`] bytes.
    pub(in crate::xsk) scratch: i32,
}

/// The BPF program that sends entries of a ring.
pub(in crate::xsk) fn send(what: Sends) -> Vec<Insn> {
    let mut code = Code::default();
    code.extend([copy(6, 1), call(GET_NETNS_COOKIE)]);
    code.extend(load_64(1, what.queue.namespace));
    code.jump(Label::Elsewhere, op(IF_NOT_EQUAL, 0, 1, 0, 0));
    code.extend([
        set(1, what.queue.number as i32 + 1),
        op(STORE_WORD, 6, 1, QUEUE_MAPPING, 0),
        op(LOAD_WORD, 8, 6, COUNT, 0),
        set(9, 0),
        op(STORE_LONG_IMM, STACK, 0, DROPPED, 0),
    ]);
    read_entries(&mut code, &what);
    code.mark(Label::Next);
    code.jump(Label::Out, op(IF_NOT_BELOW, 9, 8, 0, 0));
    code.jump(Label::Out, op(IF_EQUAL_IMM, 9, 0, 0, MOST as i32));
    read_packet(&mut code, &what);
    write_packet(&mut code, what.scratch);
    code.extend([copy(1, 6), set(2, what.queue.index as i32)]);
    code.extend([set(3, 0), call(CLONE_REDIRECT)]);
    code.jump(Label::Out, op(IF_NEGATIVE, 0, 0, 0, 0));
    code.jump(Label::Unknown, op(IF_EQUAL_IMM, 0, 0, 0, NET_XMIT_CN));
    code.extend([op(ADD_IMM, 9, 0, 0, 1)]);
    code.jump(Label::Next, op(IF_EQUAL_IMM, 0, 0, 0, 0));
    code.extend([op(LOAD_LONG, 1, STACK, DROPPED, 0), op(ADD_IMM, 1, 0, 0, 1)]);
    code.extend([op(STORE_LONG, STACK, 1, DROPPED, 0)]);
    code.jump(Label::Next, op(JUMP, 0, 0, 0, 0));
    code.mark(Label::Unknown);
    code.extend([op(OR_IMM, 9, 0, 0, UNKNOWN as i32)]);
    code.mark(Label::Out);
    code.extend([op(LOAD_LONG, 0, STACK, DROPPED, 0), op(SHIFT_LEFT_IMM, 0, 0, 0, DROPPED_SHIFT)]);
    code.extend([op(OR, 0, 9, 0, 0), LEAVE]);
    code.mark(Label::Elsewhere);
    code.extend([set(0, ELSEWHERE as i32), LEAVE]);
    code.finish()
}

fn read_entries(code: &mut Code<Label>, what: &Sends) {
    code.jump(Label::Out, op(IF_ABOVE_IMM, 8, 0, 0, MOST as i32));
    code.extend([copy(2, 8), op(SHIFT_LEFT_IMM, 2, 0, 0, ENTRY_SHIFT)]);
    code.extend(in_scratch(1, what.scratch, 0));
    code.extend([op(LOAD_WORD, 3, 6, FIRST, 0), op(SHIFT_LEFT_IMM, 3, 0, 0, ENTRY_SHIFT)]);
    code.extend(load_64(4, what.ring));
    code.extend([op(ADD, 3, 4, 0, 0), call(PROBE_READ_USER)]);
    code.jump(Label::Out, op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
}

/// Copies a packet to the scratch memory, and its length to r7. No helper copies it directly.
fn read_packet(code: &mut Code<Label>, what: &Sends) {
    code.extend([copy(4, 9), op(SHIFT_LEFT_IMM, 4, 0, 0, ENTRY_SHIFT)]);
    code.extend(in_scratch(1, what.scratch, 0));
    code.extend([op(ADD, 1, 4, 0, 0), op(LOAD_WORD, 7, 1, 8, 0)]);
    code.jump(Label::Out, op(IF_ABOVE_IMM, 7, 0, 0, LONGEST));
    code.jump(Label::Out, op(IF_BELOW_IMM, 7, 0, 0, SHORTEST as i32));
    code.extend([op(LOAD_LONG, 3, 1, 0, 0)]);
    code.extend(load_64(4, what.memory));
    code.extend([op(ADD, 3, 4, 0, 0)]);
    code.extend(in_scratch(1, what.scratch, ENTRIES));
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
