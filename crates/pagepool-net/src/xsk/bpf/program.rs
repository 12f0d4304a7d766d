//! The short XDP programs: one redirects packets to sockets, one passes all packets.
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

use crate::sys::bpf::Insn;
use crate::sys::bpf::assembler::{LEAVE, LOAD_WORD, MAP_FD, call, load_64_as, op, set};

/// `offsetof(struct xdp_md, rx_queue_index)`.
pub(super) const RX_QUEUE_INDEX: i16 = 16;
pub(super) const XDP_PASS: i32 = 2;
/// The number of the helper.
const REDIRECT_MAP: i32 = 51;

pub(in crate::xsk) fn redirect(map: i32) -> [Insn; 6] {
    let [map, rest] = load_64_as(1, MAP_FD, [map, 0]);
    [op(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0), map, rest, set(3, XDP_PASS), call(REDIRECT_MAP), LEAVE]
}

pub(in crate::xsk) fn pass() -> [Insn; 2] {
    [set(0, XDP_PASS), LEAVE]
}
