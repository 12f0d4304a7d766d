//! An assembler for BPF: instructions, and jumps to labels that `finish` resolves.

use super::Insn;

/// Codes of instructions (include/uapi/linux/bpf_common.h and bpf.h, v7.3).
pub(crate) const LOAD_BYTE: u8 = 0x71; // BPF_LDX | BPF_MEM | BPF_B
pub(crate) const LOAD_HALF: u8 = 0x69; // BPF_LDX | BPF_MEM | BPF_H
pub(crate) const LOAD_WORD: u8 = 0x61; // BPF_LDX | BPF_MEM | BPF_W
pub(crate) const LOAD_LONG: u8 = 0x79; // BPF_LDX | BPF_MEM | BPF_DW
pub(crate) const STORE_WORD: u8 = 0x63; // BPF_STX | BPF_MEM | BPF_W
pub(crate) const STORE_LONG: u8 = 0x7b; // BPF_STX | BPF_MEM | BPF_DW
pub(crate) const STORE_LONG_IMM: u8 = 0x7a; // BPF_ST | BPF_MEM | BPF_DW
pub(crate) const STORE_WORD_IMM: u8 = 0x62; // BPF_ST | BPF_MEM | BPF_W
pub(crate) const LOAD_64: u8 = 0x18; // BPF_LD | BPF_IMM | BPF_DW
pub(crate) const MOVE: u8 = 0xbf; // BPF_ALU64 | BPF_MOV | BPF_X
pub(crate) const MOVE_IMM: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
pub(crate) const ADD: u8 = 0x0f; // BPF_ALU64 | BPF_ADD | BPF_X
pub(crate) const ADD_IMM: u8 = 0x07; // BPF_ALU64 | BPF_ADD | BPF_K
pub(crate) const OR: u8 = 0x4f; // BPF_ALU64 | BPF_OR | BPF_X
pub(crate) const OR_IMM: u8 = 0x47; // BPF_ALU64 | BPF_OR | BPF_K
pub(crate) const AND: u8 = 0x5f; // BPF_ALU64 | BPF_AND | BPF_X
pub(crate) const AND_IMM: u8 = 0x57; // BPF_ALU64 | BPF_AND | BPF_K
pub(crate) const AND_IMM_32: u8 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(crate) const SHIFT_LEFT_32: u8 = 0x6c; // BPF_ALU | BPF_LSH | BPF_X
pub(crate) const SHIFT_LEFT_IMM: u8 = 0x67; // BPF_ALU64 | BPF_LSH | BPF_K
pub(crate) const SHIFT_RIGHT_IMM: u8 = 0x77; // BPF_ALU64 | BPF_RSH | BPF_K
pub(crate) const FROM_BIG_ENDIAN: u8 = 0xdc; // BPF_ALU | BPF_END | BPF_TO_BE
pub(crate) const JUMP: u8 = 0x05; // BPF_JMP | BPF_JA
pub(crate) const IF_EQUAL: u8 = 0x1d; // BPF_JMP | BPF_JEQ | BPF_X
pub(crate) const IF_EQUAL_IMM: u8 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub(crate) const IF_ABOVE: u8 = 0x2d; // BPF_JMP | BPF_JGT | BPF_X
pub(crate) const IF_ABOVE_IMM: u8 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
pub(crate) const IF_NOT_BELOW: u8 = 0x3d; // BPF_JMP | BPF_JGE | BPF_X
pub(crate) const IF_NOT_EQUAL: u8 = 0x5d; // BPF_JMP | BPF_JNE | BPF_X
pub(crate) const IF_NOT_EQUAL_IMM: u8 = 0x55; // BPF_JMP | BPF_JNE | BPF_K
pub(crate) const IF_BELOW_IMM: u8 = 0xa5; // BPF_JMP | BPF_JLT | BPF_K
pub(crate) const IF_NEGATIVE: u8 = 0xc5; // BPF_JMP | BPF_JSLT | BPF_K, with 0
// 32 bits, because comparisons of 64 bits sign-extend their immediate.
pub(crate) const IF_EQUAL_32: u8 = 0x16; // BPF_JMP32 | BPF_JEQ | BPF_K
pub(crate) const IF_NOT_EQUAL_32: u8 = 0x56; // BPF_JMP32 | BPF_JNE | BPF_K
pub(crate) const IF_ABOVE_32: u8 = 0x26; // BPF_JMP32 | BPF_JGT | BPF_K
pub(crate) const IF_BELOW_32: u8 = 0xa6; // BPF_JMP32 | BPF_JLT | BPF_K
pub(crate) const IF_NOT_ABOVE_32: u8 = 0xb6; // BPF_JMP32 | BPF_JLE | BPF_K
pub(crate) const CALL: u8 = 0x85; // BPF_JMP | BPF_CALL
const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT
/// The frame pointer.
pub(crate) const STACK: u8 = 10;
/// The source register of a `LOAD_64` of a map's descriptor. Linux: `BPF_PSEUDO_MAP_FD`.
pub(crate) const MAP_FD: u8 = 1;
/// The source register of a `LOAD_64` of the address of a map's first element. Linux: `BPF_PSEUDO_MAP_VALUE`.
pub(crate) const MAP_VALUE: u8 = 2;

pub(crate) const fn op(code: u8, to: u8, from: u8, offset: i16, imm: i32) -> Insn {
    Insn { code, registers: from << 4 | to, offset, imm }
}

pub(crate) const fn copy(to: u8, from: u8) -> Insn {
    op(MOVE, to, from, 0, 0)
}

pub(crate) const fn set(to: u8, value: i32) -> Insn {
    op(MOVE_IMM, to, 0, 0, value)
}

pub(crate) const fn call(helper: i32) -> Insn {
    op(CALL, 0, 0, 0, helper)
}

pub(crate) const LEAVE: Insn = op(EXIT, 0, 0, 0, 0);

pub(crate) fn load_64(to: u8, value: u64) -> [Insn; 2] {
    load_64_as(to, 0, [value as i32, (value >> 32) as i32])
}

pub(crate) fn load_64_as(to: u8, kind: u8, [first, second]: [i32; 2]) -> [Insn; 2] {
    [op(LOAD_64, to, kind, 0, first), op(0, 0, 0, 0, second)]
}

#[derive(Debug)]
pub(crate) struct Code<L> {
    instructions: Vec<Insn>,
    jumps: Vec<(usize, L)>,
    places: Vec<(L, usize)>,
}

impl<L> Default for Code<L> {
    fn default() -> Self {
        Self { instructions: Vec::new(), jumps: Vec::new(), places: Vec::new() }
    }
}

impl<L: PartialEq> Code<L> {
    pub(crate) fn extend(&mut self, more: impl IntoIterator<Item = Insn>) {
        self.instructions.extend(more);
    }

    pub(crate) fn jump(&mut self, to: L, instruction: Insn) {
        self.jumps.push((self.instructions.len(), to));
        self.instructions.push(instruction);
    }

    pub(crate) fn mark(&mut self, label: L) {
        self.places.push((label, self.instructions.len()));
    }

    /// Resolves the jumps. An offset counts from the instruction behind the jump.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, to) in self.jumps {
            let place = self.places.iter().find(|(label, _)| *label == to).expect("each label is marked").1;
            self.instructions[at].offset = (place as isize - at as isize - 1) as i16;
        }
        self.instructions
    }
}
