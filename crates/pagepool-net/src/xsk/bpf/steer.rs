//! The XDP program of an expression: takes packets that match, and passes the rest to the stack.
//!
//! ```text
//!   headers                       ; each that the expression tests is read once, to a word of the stack
//!   decide                        ; comparisons of these words, and jumps: `and` and `or` end early
//!   taken: r1 = r6 ...            ; what the caller does with a packet
//!   passed: r0 = 2; exit          ; XDP_PASS
//! ```
//!
//! Registers while headers are read: r5 the protocol, r6 the context, r7 the next header, r8 the packet's
//! end; r1 to r4 are scratch.
//!
//! Every access to the packet follows a comparison with its end. A stack word without a value holds
//! [`UNKNOWN`], which no field can have. No word is at a multiple of eight, so the kernel's verifier forgets
//! its value: from `decide` on, all paths through the headers are one to it, and its work grows with the sum
//! of both parts instead of their product.

use super::program::pass;
use super::rx_metadata::DATA;
use crate::steering::{
    Comparison, ETHER_IP, ETHER_IP6, EXTENSIONS, Expression, Extension, Fact, ICMP6, MOST_EXTENSIONS, Match,
    TAG_TYPES, WITH_PORTS,
};
use crate::sys::bpf::Insn;
use crate::sys::bpf::assembler::{
    ADD, ADD_IMM, AND_IMM, AND_IMM_32, Code, FROM_BIG_ENDIAN, IF_ABOVE, IF_ABOVE_32, IF_ABOVE_IMM,
    IF_BELOW_32, IF_BELOW_IMM, IF_EQUAL_32, IF_EQUAL_IMM, IF_NOT_ABOVE_32, IF_NOT_EQUAL_32, IF_NOT_EQUAL_IMM,
    JUMP, LOAD_BYTE, LOAD_HALF, LOAD_WORD, SHIFT_LEFT_IMM, SHIFT_RIGHT_IMM, STACK, STORE_WORD,
    STORE_WORD_IMM, copy, op, set,
};

/// The value of a stack word that was not written.
const UNKNOWN: i32 = -1;
/// An offset in `struct xdp_md`.
const DATA_END: i16 = 4;
const LONGEST_EXTENSION: i32 = 8 * 256;
/// The stack word for no fact.
const SCRATCH: usize = 7;

/// The program of an expression. `taken` handles a packet that matches: it gets the context in r1, and ends
/// the program.
pub(in crate::xsk) fn steer(by: &Match, taken: &[Insn]) -> Vec<Insn> {
    match by.expression() {
        Expression::Always(true) => return taken.to_vec(),
        Expression::Always(false) => return pass().to_vec(),
        _ => {}
    }
    let mut used = Vec::new();
    by.expression().facts(&mut used);
    used.sort();
    used.dedup();
    let mut program = SteerProgram { code: Code::default(), labels: 0, used };
    program.headers();
    let passed = program.label();
    program.decide(by.expression(), passed, false);
    program.code.extend([copy(1, 6)]);
    program.code.extend(taken.iter().copied());
    program.code.mark(passed);
    program.code.extend(pass());
    program.code.finish()
}

/// The offset of a stack word from the frame pointer, never a multiple of eight.
fn place(word: usize) -> i16 {
    -4 - 8 * word as i16
}

fn place_of(fact: Fact) -> i16 {
    place(match fact {
        Fact::EtherType => 0,
        Fact::Tag(which) => 1 + which,
        Fact::Family => 3,
        Fact::Protocol => 4,
        Fact::Fragment => 5,
        Fact::Icmp6 => 6,
        Fact::Port(side) => 1 + SCRATCH + side,
        Fact::Address(side, part) => 3 + SCRATCH + 4 * side + part,
    })
}

struct SteerProgram {
    code: Code<u32>,
    labels: u32,
    used: Vec<Fact>,
}

impl SteerProgram {
    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn uses(&self, any: impl Fn(&Fact) -> bool) -> bool {
        self.used.iter().any(any)
    }

    fn uses_transport(&self) -> bool {
        self.uses(|word| matches!(word, Fact::Port(_) | Fact::Icmp6))
    }

    fn uses_protocol(&self) -> bool {
        self.uses_transport() || self.uses(|word| matches!(word, Fact::Protocol | Fact::Fragment))
    }

    fn headers(&mut self) {
        let (done, ip6, transport) = (self.label(), self.label(), self.label());
        self.code.extend([copy(6, 1), op(LOAD_WORD, 7, 1, DATA, 0), op(LOAD_WORD, 8, 1, DATA_END, 0)]);
        for word in self.used.clone() {
            self.store_imm(word, UNKNOWN);
        }
        self.link(done);
        if self.uses(|word| !matches!(word, Fact::EtherType | Fact::Tag(_))) {
            self.code.jump(ip6, op(IF_NOT_EQUAL_IMM, 2, 0, 0, ETHER_IP.into()));
            self.ip(done, transport);
            self.code.mark(ip6);
            self.code.jump(done, op(IF_NOT_EQUAL_IMM, 2, 0, 0, ETHER_IP6.into()));
            self.ip6(done);
            self.code.mark(transport);
            self.transport(done);
        }
        self.code.mark(done);
    }

    /// Continues only if the packet has this many more bytes.
    fn room(&mut self, bytes: i32, done: u32) {
        self.code.extend([copy(1, 7), op(ADD_IMM, 1, 0, 0, bytes)]);
        self.code.jump(done, op(IF_ABOVE, 1, 8, 0, 0));
    }

    fn load_half(&mut self, to: u8, at: i16) {
        self.code.extend([op(LOAD_HALF, to, 7, at, 0), op(FROM_BIG_ENDIAN, to, 0, 0, 16)]);
    }

    /// Stores a register, if the word is compared.
    fn store(&mut self, word: Fact, from: u8) {
        if self.uses(|used| *used == word) {
            self.code.extend([op(STORE_WORD, STACK, from, place_of(word), 0)]);
        }
    }

    fn store_imm(&mut self, word: Fact, value: i32) {
        if self.uses(|used| *used == word) {
            self.code.extend([op(STORE_WORD_IMM, STACK, 0, place_of(word), value)]);
        }
    }

    /// Reads the VLAN tags and the EtherType, which stays in r2.
    fn link(&mut self, done: u32) {
        let last = self.label();
        self.room(14, done);
        self.load_half(2, 12);
        self.code.extend([op(ADD_IMM, 7, 0, 0, 14)]);
        for which in 0..2 {
            let tag = self.label();
            for tag_type in TAG_TYPES {
                self.code.jump(tag, op(IF_EQUAL_IMM, 2, 0, 0, tag_type.into()));
            }
            self.code.jump(last, op(JUMP, 0, 0, 0, 0));
            self.code.mark(tag);
            self.room(4, done);
            self.load_half(3, 0);
            self.code.extend([op(AND_IMM, 3, 0, 0, 0xfff)]);
            self.load_half(2, 2);
            self.code.extend([op(ADD_IMM, 7, 0, 0, 4)]);
            self.store(Fact::Tag(which), 3);
        }
        self.code.mark(last);
        self.store(Fact::EtherType, 2);
    }

    fn ip(&mut self, done: u32, transport: u32) {
        self.room(20, done);
        self.code.extend([op(LOAD_BYTE, 2, 7, 0, 0), copy(3, 2), op(SHIFT_RIGHT_IMM, 3, 0, 0, 4)]);
        self.code.jump(done, op(IF_NOT_EQUAL_IMM, 3, 0, 0, 4));
        self.code.extend([op(AND_IMM, 2, 0, 0, 15)]);
        self.code.jump(done, op(IF_BELOW_IMM, 2, 0, 0, 5)); // words of the header
        self.store_imm(Fact::Family, 4);
        (0..2).for_each(|side| self.address(side, 0, 12 + 4 * side as i16));
        if self.uses_protocol() {
            self.code.extend([op(LOAD_BYTE, 5, 7, 9, 0)]);
            self.store(Fact::Protocol, 5);
            self.load_half(3, 6);
            self.fragment([0x3fff, 0x1fff], done); // more fragments or an offset; an offset
            self.code.extend([op(SHIFT_LEFT_IMM, 2, 0, 0, 2), op(ADD, 7, 2, 0, 0)]);
        }
        self.code.jump(transport, op(JUMP, 0, 0, 0, 0));
    }

    /// Records from r3 whether the packet is a fragment; leaves if it is not the first one.
    fn fragment(&mut self, [any, later]: [i32; 2], leave: u32) {
        let whole = self.label();
        self.code.extend([copy(4, 3), op(AND_IMM, 4, 0, 0, any)]);
        self.code.jump(whole, op(IF_EQUAL_IMM, 4, 0, 0, 0));
        self.store_imm(Fact::Fragment, 1);
        self.code.extend([op(AND_IMM, 3, 0, 0, later)]);
        self.code.jump(leave, op(IF_NOT_EQUAL_IMM, 3, 0, 0, 0));
        self.code.mark(whole);
    }

    fn address(&mut self, side: usize, part: usize, at: i16) {
        if self.uses(|used| *used == Fact::Address(side, part)) {
            self.code.extend([op(LOAD_WORD, 1, 7, at, 0), op(FROM_BIG_ENDIAN, 1, 0, 0, 32)]);
            self.store(Fact::Address(side, part), 1);
        }
    }

    fn ip6(&mut self, done: u32) {
        self.room(40, done);
        self.code.extend([op(LOAD_BYTE, 2, 7, 0, 0), op(SHIFT_RIGHT_IMM, 2, 0, 0, 4)]);
        self.code.jump(done, op(IF_NOT_EQUAL_IMM, 2, 0, 0, 6));
        self.store_imm(Fact::Family, 6);
        for (side, part) in (0..2).flat_map(|side| (0..4).map(move |part| (side, part))) {
            self.address(side, part, 8 + 16 * side as i16 + 4 * part as i16);
        }
        if self.uses_protocol() {
            let (payload, later) = (self.label(), self.label());
            self.code.extend([op(LOAD_BYTE, 5, 7, 6, 0), op(ADD_IMM, 7, 0, 0, 40)]);
            (0..MOST_EXTENSIONS).for_each(|_| self.extension(payload, later, done));
            for (number, _) in EXTENSIONS {
                self.code.jump(done, op(IF_EQUAL_IMM, 5, 0, 0, number.into()));
            }
            self.code.jump(payload, op(JUMP, 0, 0, 0, 0));
            self.code.mark(later);
            self.store(Fact::Protocol, 5);
            self.code.jump(done, op(JUMP, 0, 0, 0, 0));
            self.code.mark(payload);
            self.store(Fact::Protocol, 5);
        }
    }

    /// Skips an extension header, if r5 announces one.
    fn extension(&mut self, payload: u32, later: u32, done: u32) {
        let kinds = [Extension::Options, Extension::Authentication, Extension::Fragment];
        let (labels, skip) = (kinds.map(|kind| (kind, self.label())), self.label());
        for (number, kind) in EXTENSIONS {
            let of_kind = labels.iter().find(|(other, _)| *other == kind).map_or(done, |(_, label)| *label);
            self.code.jump(of_kind, op(IF_EQUAL_IMM, 5, 0, 0, number.into()));
        }
        self.code.jump(payload, op(JUMP, 0, 0, 0, 0));
        for (kind, label) in labels {
            self.code.mark(label);
            self.room(8, done);
            match kind {
                Extension::Options => self.extension_length(1, 3),
                Extension::Authentication => self.extension_length(2, 2),
                Extension::Fragment => {
                    self.load_half(3, 2);
                    self.code.extend([op(LOAD_BYTE, 5, 7, 0, 0)]);
                    self.fragment([0xfff9, 0xfff8], later);
                    self.code.extend([set(2, 8)]);
                }
            }
            self.code.jump(skip, op(JUMP, 0, 0, 0, 0));
        }
        self.code.mark(skip);
        // Through the stack: all kinds are then one to the verifier.
        let scratch = place(SCRATCH);
        self.code.extend([op(STORE_WORD, STACK, 2, scratch, 0), op(LOAD_WORD, 2, STACK, scratch, 0)]);
        self.code.jump(done, op(IF_ABOVE_IMM, 2, 0, 0, LONGEST_EXTENSION));
        self.code.extend([op(ADD, 7, 2, 0, 0)]);
    }

    /// Reads the header's length to r2 and the next protocol to r5. The length counts units of a power of
    /// two, less some.
    fn extension_length(&mut self, more: i32, shift: i32) {
        self.code.extend([
            op(LOAD_BYTE, 2, 7, 1, 0),
            op(ADD_IMM, 2, 0, 0, more),
            op(SHIFT_LEFT_IMM, 2, 0, 0, shift),
            op(LOAD_BYTE, 5, 7, 0, 0),
        ]);
    }

    /// Reads the ports, or the type of an ICMP message.
    fn transport(&mut self, done: u32) {
        if !self.uses_transport() {
            return;
        }
        let ports = self.label();
        for protocol in WITH_PORTS {
            self.code.jump(ports, op(IF_EQUAL_IMM, 5, 0, 0, protocol.into()));
        }
        if self.uses(|word| *word == Fact::Icmp6) {
            self.code.jump(done, op(IF_NOT_EQUAL_IMM, 5, 0, 0, ICMP6.into()));
            self.room(1, done);
            self.code.extend([op(LOAD_BYTE, 2, 7, 0, 0)]);
            self.store(Fact::Icmp6, 2);
        }
        self.code.jump(done, op(JUMP, 0, 0, 0, 0));
        self.code.mark(ports);
        self.room(4, done);
        for side in 0..2 {
            self.load_half(2, 2 * side as i16);
            self.store(Fact::Port(side), 2);
        }
    }

    /// Jumps if the expression is `when`; otherwise continues behind.
    fn decide(&mut self, by: &Expression, to: u32, when: bool) {
        match by {
            Expression::Always(_) => unreachable!("what is certain has no parts, and is no part"),
            Expression::If(comparison) => self.compare(comparison, to, when),
            Expression::Not(part) => self.decide(part, to, !when),
            Expression::And(parts) => self.join(parts, to, when, false),
            Expression::Or(parts) => self.join(parts, to, when, true),
            Expression::Named(_, part) => self.decide(part, to, when),
        }
    }

    /// Decides about parts, of which one that equals `decides` decides all.
    fn join(&mut self, parts: &[Expression], to: u32, when: bool, decides: bool) {
        let behind = self.label();
        let Some((last, parts)) = parts.split_last() else { return };
        let early = if when == decides { to } else { behind };
        parts.iter().for_each(|part| self.decide(part, early, decides));
        self.decide(last, to, when);
        self.code.mark(behind);
    }

    fn compare(&mut self, &Comparison { fact, mask, first, last }: &Comparison, to: u32, when: bool) {
        self.code.extend([op(LOAD_WORD, 1, STACK, place_of(fact), 0)]);
        if mask != u32::MAX {
            self.code.extend([op(AND_IMM_32, 1, 0, 0, mask as i32)]);
        }
        let behind = self.label();
        match (first == last, when) {
            (true, true) => self.code.jump(to, op(IF_EQUAL_32, 1, 0, 0, first as i32)),
            (true, false) => self.code.jump(to, op(IF_NOT_EQUAL_32, 1, 0, 0, first as i32)),
            (false, true) => {
                self.code.jump(behind, op(IF_BELOW_32, 1, 0, 0, first as i32));
                self.code.jump(to, op(IF_NOT_ABOVE_32, 1, 0, 0, last as i32));
            }
            (false, false) => {
                self.code.jump(to, op(IF_BELOW_32, 1, 0, 0, first as i32));
                self.code.jump(to, op(IF_ABOVE_32, 1, 0, 0, last as i32));
            }
        }
        self.code.mark(behind);
    }
}
