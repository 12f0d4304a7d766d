//! The XDP program that runs others one after another, and its configuration: versions 2 and 3 of libxdp's
//! protocol.
//!
//! ```text
//! xdp_dispatcher:
//!   r6 = r1
//!   r7 = configuration ll
//!   each slot:
//!     r1 = r6
//!     call slot                   ; a function of this program, whose place another program takes
//!     r1 = 1
//!     w1 <<= w0                   ; the bit of what it returned
//!     r2 = *(u32 *)(r7 + ...)     ; after which the next one runs
//!     r1 &= r2
//!     if r1 == 0 goto end
//!   r0 = 2                        ; XDP_PASS
//! end:
//!   exit
//! each slot:
//!   r2 = 0
//!   call bpf_xdp_adjust_tail      ; changes nothing: see below
//!   r0 = 31                       ; no program replaces it
//!   exit
//! ```
//!
//! From Linux 6.13 on, a program that may change packets can only replace a function that may. So each slot
//! calls a helper that may.
//!
//! libxdp's dispatcher always has ten slots. This one has only those that it needs.

use super::function_types::FunctionTypes;
use crate::sys::bpf::assembler::{
    AND, CALL, Code, IF_EQUAL_IMM, LEAVE, LOAD_WORD, MAP_VALUE, SHIFT_LEFT_32, call, copy, load_64_as, op,
    set,
};
use crate::sys::bpf::{Insn, XDP_DEV_BOUND_ONLY as DEV_BOUND_ONLY, XDP_HAS_FRAGS as HAS_FRAGS};
use crate::xsk::bpf::program::XDP_PASS;

/// By this name other users of the protocol recognise a dispatcher.
pub(in crate::xsk::bpf) const NAME: &str = "xdp_dispatcher";
/// Most programs on an interface.
pub(in crate::xsk::bpf) const MOST: usize = 10;
/// Bytes of a configuration: four bytes, and three lists of words.
const LEN: usize = 4 + 3 * 4 * MOST;
/// Bytes that version 3 appends: whether it is for one device, and padding.
const LEN_OF_BOUND: usize = 4;
/// The longest configuration of any version.
pub(in crate::xsk::bpf) const LONGEST: usize = 4096;
/// The first byte of a configuration.
const MAGIC: u8 = 236;
/// The result of an empty slot.
const EMPTY: i32 = 31;
/// Linux: `BPF_FUNC_xdp_adjust_tail`, of a context and the bytes to add.
pub(in crate::xsk::bpf) const ADJUST_TAIL: i32 = 65;
/// The source register of a call within the program. Linux: `BPF_PSEUDO_CALL`.
const OWN: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xsk::bpf) struct ChainSlot {
    /// Lower numbers run first.
    pub(in crate::xsk::bpf) priority: u32,
    /// The results after which the next program runs, as bits.
    pub(in crate::xsk::bpf) actions: u32,
    pub(in crate::xsk::bpf) frags: bool,
}

impl ChainSlot {
    /// For a program that lets the next one run if it passes a packet.
    pub(in crate::xsk::bpf) fn passing(priority: u32, frags: bool) -> Self {
        Self { priority, actions: 1 << XDP_PASS | 1 << EMPTY, frags }
    }
}

/// The form of all dispatchers of a chain, chosen by the process that began it: libxdp does not change the
/// version either, and only dispatchers for one device run programs for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xsk::bpf) enum ChainForm {
    /// Version 2: xdp-tools 1.3 to 1.5.
    Second,
    /// Version 3: xdp-tools from 1.6 on.
    Third {
        /// For one device, whose driver the programs may query about packets.
        bound: bool,
    },
}

impl ChainForm {
    fn version(self) -> u8 {
        match self {
            Self::Second => 2,
            Self::Third { .. } => 3,
        }
    }

    pub(in crate::xsk::bpf) fn is_bound(self) -> bool {
        self == Self::Third { bound: true }
    }
}

/// A dispatcher accepts packets of several buffers if all its programs do.
pub(in crate::xsk::bpf) fn has_frags(slots: &[ChainSlot]) -> bool {
    slots.iter().all(|slot| slot.frags)
}

pub(in crate::xsk::bpf) fn configuration(form: ChainForm, slots: &[ChainSlot]) -> Vec<u8> {
    let mut bytes = vec![MAGIC, form.version(), slots.len() as u8, has_frags(slots).into()];
    let mut list = |of: &dyn Fn(&ChainSlot) -> u32| {
        let words = slots.iter().map(of).chain(std::iter::repeat(0)).take(MOST);
        bytes.extend(words.flat_map(u32::to_ne_bytes));
    };
    let bound = if form.is_bound() { DEV_BOUND_ONLY } else { 0 };
    list(&|slot| slot.actions);
    list(&|slot| slot.priority);
    list(&|slot| bound | if slot.frags { HAS_FRAGS } else { 0 });
    if form != ChainForm::Second {
        bytes.extend([form.is_bound().into(), 0, 0, 0]);
    }
    bytes
}

fn form(configuration: &[u8]) -> Option<ChainForm> {
    match (configuration.get(..2)?, configuration.get(LEN..)?) {
        ([MAGIC, 2], []) => Some(ChainForm::Second),
        ([MAGIC, 3], more @ [bound, ..]) if more.len() == LEN_OF_BOUND => {
            Some(ChainForm::Third { bound: *bound != 0 })
        }
        _ => None,
    }
}

/// Reads a configuration; `None` for another version or other bytes.
pub(in crate::xsk::bpf) fn read(configuration: &[u8]) -> Option<(ChainForm, Vec<ChainSlot>)> {
    let form = form(configuration)?;
    let (&[_, _, count, _], lists) = configuration.split_first_chunk()?;
    let word = |list: usize, slot: usize| {
        let bytes = lists.get(4 * (list * MOST + slot)..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let slot = |at| {
        Some(ChainSlot {
            actions: word(0, at)?,
            priority: word(1, at)?,
            frags: word(2, at)? & HAS_FRAGS != 0,
        })
    };
    let fits = usize::from(count) <= MOST;
    let slots: Option<Vec<_>> = fits.then(|| (0..count.into()).map(slot).collect())?;
    Some((form, slots?))
}

pub(in crate::xsk::bpf) fn version(configuration: &[u8]) -> Option<u8> {
    match configuration {
        [MAGIC, version, ..] => Some(*version),
        _ => None,
    }
}

/// The types of a dispatcher's functions: itself, then its slots.
pub(in crate::xsk::bpf) fn types(form: ChainForm, slots: usize) -> FunctionTypes {
    let names: Vec<String> = (0..slots).map(|slot| format!("prog{slot}")).collect();
    let names = std::iter::once(NAME).chain(names.iter().map(String::as_str));
    FunctionTypes::new(names).with_number("xdp_metadata", "dispatcher_version", form.version().into())
}

pub(in crate::xsk::bpf) fn slot_type(slot: usize) -> u32 {
    FunctionTypes::number(1 + slot)
}

/// A dispatcher over its configuration map; and for each function the first instruction and type number.
pub(in crate::xsk::bpf) fn program(slots: usize, map: i32) -> (Vec<Insn>, Vec<[u32; 2]>) {
    let mut code = Code::default();
    code.extend([copy(6, 1)]);
    code.extend(load_64_as(7, MAP_VALUE, [map, 0]));
    for slot in 0..slots {
        let actions = 4 + 4 * slot as i16;
        code.extend([copy(1, 6), op(CALL, 0, OWN, 0, slot as i32), set(1, 1)]);
        code.extend([op(SHIFT_LEFT_32, 1, 0, 0, 0), op(LOAD_WORD, 2, 7, actions, 0), op(AND, 1, 2, 0, 0)]);
        code.jump((), op(IF_EQUAL_IMM, 1, 0, 0, 0));
    }
    code.extend([set(0, XDP_PASS)]);
    code.mark(());
    code.extend([LEAVE]);
    let mut instructions = code.finish();
    let mut functions = vec![[0, FunctionTypes::number(0)]];
    let first = instructions.len();
    for slot in 0..slots {
        functions.push([instructions.len() as u32, slot_type(slot)]);
        instructions.extend(EMPTY_SLOT);
    }
    for (at, call) in instructions.iter_mut().enumerate().filter(|(_, op)| is_own_call(op)) {
        // A call counts from the instruction behind it, like a jump.
        call.imm = (first + EMPTY_SLOT.len() * call.imm as usize) as i32 - at as i32 - 1;
    }
    (instructions, functions)
}

/// A slot's code until a program replaces it.
const EMPTY_SLOT: [Insn; 4] = [set(2, 0), call(ADJUST_TAIL), set(0, EMPTY), LEAVE];

fn is_own_call(instruction: &Insn) -> bool {
    instruction.code == CALL && instruction.registers >> 4 == OWN
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRD: ChainForm = ChainForm::Third { bound: false };

    #[test]
    fn a_configuration_is_read_as_it_was_written() {
        let some = [ChainSlot::passing(10, true), ChainSlot { priority: 50, actions: 6, frags: false }];
        let bound = ChainForm::Third { bound: true };
        for (form, len, version) in [(ChainForm::Second, 124, 2), (THIRD, 128, 3), (bound, 128, 3)] {
            let bytes = configuration(form, &some);
            assert_eq!((bytes.len(), &bytes[..4]), (len, &[236, version, 2, 0][..]));
            assert_eq!(read(&bytes), Some((form, some.to_vec())));
            assert_eq!(configuration(form, &some[..1])[3], 1, "all of its programs accept several buffers");
            for (at, other) in [(0, 0), (1, 1), (1, 4), (1, 5 - version), (2, 11)] {
                let mut changed = bytes.clone();
                changed[at] = other;
                assert_eq!(read(&changed), None, "{form:?} {at}");
            }
            assert!((0..bytes.len()).filter(|&len| len != 124).all(|len| read(&bytes[..len]).is_none()));
            assert_eq!(read(&[&bytes[..], &[0; 4]].concat()), None, "longer");
        }
        assert_eq!(version(&configuration(THIRD, &some)), Some(3));
        assert_eq!([&[MAGIC, 4][..], &[0, 2], &[]].map(version), [Some(4), None, None]);
    }

    #[test]
    fn a_program_for_one_device_is_marked_as_libxdp_does() {
        let bytes = configuration(ChainForm::Third { bound: true }, &[ChainSlot::passing(10, true)]);
        let flags = u32::from_ne_bytes(bytes[84..88].try_into().expect("four bytes"));
        assert_eq!((flags, bytes[124]), (HAS_FRAGS | DEV_BOUND_ONLY, 1));
    }

    #[test]
    fn calls_go_to_the_slots() {
        let (program, functions) = program(3, 7);
        let calls: Vec<_> = program.iter().enumerate().filter(|(_, op)| is_own_call(op)).collect();
        let to: Vec<_> = calls.iter().map(|(at, call)| *at as i32 + 1 + call.imm).collect();
        assert_eq!(to, functions[1..].iter().map(|[at, _]| *at as i32).collect::<Vec<_>>());
        assert_eq!(program.len(), functions[3][0] as usize + EMPTY_SLOT.len());
        let slots = functions[1..].iter().map(|[at, _]| &program[*at as usize..][..EMPTY_SLOT.len()]);
        let helpers: Vec<_> = slots.map(|slot| (slot[0].imm, slot[1].imm, slot[1].registers)).collect();
        assert_eq!(helpers, [(0, ADJUST_TAIL, 0); 3], "each calls the kernel's helper");
    }
}
