//! The program that gives packets to sockets: six instructions.
//!
//! ```text
//!   r2 = *(u32 *)(r1 + 16)        ; struct xdp_md: rx_queue_index
//!   r1 = map_fd ll                ; the map from queues to sockets (two instructions' room)
//!   r3 = 2                        ; XDP_PASS, if the queue has no socket
//!   call bpf_redirect_map         ; helper 51
//!   exit                          ; with what it says
//! ```
//!
//! A queue without a socket goes on to the kernel's stack. The lower bits of the flags as the verdict for that need
//! Linux 5.3.

use crate::sys::bpf::Insn;

/// Kinds of instructions (include/uapi/linux/bpf_common.h and bpf.h, v7.3).
const LOAD_WORD: u8 = 0x61; // BPF_LDX | BPF_MEM | BPF_W
const LOAD_64: u8 = 0x18; // BPF_LD | BPF_IMM | BPF_DW
const MOVE_IMM: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
const CALL: u8 = 0x85; // BPF_JMP | BPF_CALL
const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT
/// The source register of a `LOAD_64` whose value is a map's descriptor. Linux: `BPF_PSEUDO_MAP_FD`.
const MAP_FD: u8 = 1;
/// `offsetof(struct xdp_md, rx_queue_index)`.
const RX_QUEUE_INDEX: i16 = 16;
const XDP_PASS: i32 = 2;
/// The helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// The program over a map.
pub(super) fn redirect(map: i32) -> [Insn; 6] {
    let op = |code, to: u8, from: u8, offset, imm| Insn { code, registers: from << 4 | to, offset, imm };
    [
        op(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
        op(LOAD_64, 1, MAP_FD, 0, map),
        op(0, 0, 0, 0, 0), // the upper half of the 64 bits
        op(MOVE_IMM, 3, 0, 0, XDP_PASS),
        op(CALL, 0, 0, 0, REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
    ]
}
