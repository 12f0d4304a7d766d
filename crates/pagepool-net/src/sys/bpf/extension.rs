//! `bpf(2)` for freplace (`BPF_PROG_TYPE_EXT`): XDP programs with replaceable functions, and extensions that
//! replace one function of one program, both with BTF.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{
    Element, Insn, Kind, LINK_CREATE, Load, MAP_TYPE_ARRAY, MAP_UPDATE_ELEM, MIT, call, create_map, info,
    make, read_info,
};

const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_GET_FD_BY_ID: libc::c_int = 14;
const BTF_LOAD: libc::c_int = 18;
const MAP_FREEZE: libc::c_int = 22;
/// A program that replaces a function of another one; Linux 5.6.
const PROG_TYPE_EXT: u32 = 28;
/// Programs may read the map but not write to it.
const READ_ONLY_FOR_PROGRAMS: u32 = 1 << 7;

/// The functions of a program in its BTF: the first instruction and type number of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypedFunctions<'a> {
    pub(crate) types: BorrowedFd<'a>,
    pub(crate) functions: &'a [[u32; 2]],
}

impl TypedFunctions<'_> {
    fn of(self, load: Load) -> Load {
        Load {
            types: self.types.as_raw_fd() as u32,
            function_size: size_of::<[u32; 2]>() as u32,
            functions: self.functions.as_ptr().addr() as u64,
            function_count: self.functions.len() as u32,
            ..load
        }
    }
}

pub(crate) fn load_types(btf: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct LoadTypes {
        btf: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        padding: u32,
    }
    let (at, size) = (btf.as_ptr().addr() as u64, btf.len() as u32);
    make(BTF_LOAD, &LoadTypes { btf: at, size, ..LoadTypes::default() })
}

pub(crate) fn load_dispatcher(
    program: &[Insn],
    name: [u8; 16],
    typed: TypedFunctions<'_>,
    kind: Kind,
) -> io::Result<OwnedFd> {
    typed.of(Load { name, ..kind.attributes() }).program(program)
}

/// Loads an extension for this function of a program, and for others of its type.
pub(crate) fn load_extension(
    program: &[Insn],
    typed: TypedFunctions<'_>,
    (of, function): (BorrowedFd<'_>, u32),
) -> io::Result<OwnedFd> {
    let of_program = of.as_raw_fd() as u32;
    let of_type = Load { prog_type: PROG_TYPE_EXT, replaced: function, of_program, ..Load::licensed(MIT) };
    typed.of(of_type).program(program)
}

/// Attaches an extension in place of a function, even if it already replaces others, while the descriptor or
/// a pinned name exists. Linux 5.10.
pub(crate) fn replace_function(
    extension: BorrowedFd<'_>,
    (of, function): (BorrowedFd<'_>, u32),
) -> io::Result<OwnedFd> {
    make(LINK_CREATE, &[extension.as_raw_fd() as u32, of.as_raw_fd() as u32, 0, 0, function])
}

/// Makes a map of one constant value.
pub(crate) fn create_constant(value: &[u8]) -> io::Result<OwnedFd> {
    let made = create_map(MAP_TYPE_ARRAY, value.len() as u32, 1, READ_ONLY_FOR_PROGRAMS)?;
    let (map, key) = (made.as_raw_fd() as u32, 0u32);
    let (key, value) = ((&raw const key) as u64, value.as_ptr().addr() as u64);
    call(MAP_UPDATE_ELEM, &Element { map, key, value, ..Element::default() })?;
    call(MAP_FREEZE, &[map])?;
    Ok(made)
}

/// The value of a program's only map. `None` if the program has another number of maps, or the value exceeds
/// `most` bytes. Requires `CAP_SYS_ADMIN`.
pub(crate) fn only_value(program: BorrowedFd<'_>, most: usize) -> io::Result<Option<Vec<u8>>> {
    let [map] = match maps(program)? {
        (1, ids) => ids,
        _ => return Ok(None),
    };
    let opened = make(MAP_GET_FD_BY_ID, &[map, 0, 0])?;
    let [map_type, _, key_size, size, entries] = info(std::os::fd::AsFd::as_fd(&opened))?;
    if (map_type, key_size, entries) != (MAP_TYPE_ARRAY, 4, 1) || size as usize > most {
        return Ok(None);
    }
    // The kernel writes a value in units of eight bytes.
    let (mut value, key) = (vec![0u8; (size as usize).next_multiple_of(8)], 0u32);
    let (map, key, at) =
        (opened.as_raw_fd() as u32, (&raw const key) as u64, value.as_mut_ptr().addr() as u64);
    call(MAP_LOOKUP_ELEM, &Element { map, key, value: at, ..Element::default() })?;
    value.truncate(size as usize);
    Ok(Some(value))
}

pub(crate) fn first_map(program: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    maps(program).map(|(count, [id])| (count > 0).then_some(id))
}

/// The number of a program's maps, and the id of the first.
fn maps(program: BorrowedFd<'_>) -> io::Result<(u32, [u32; 1])> {
    /// The beginning of `struct bpf_prog_info`.
    #[repr(C)]
    #[derive(Default)]
    struct ProgramInfo {
        before: [u64; 6],
        user: u32,
        maps: u32,
        ids: u64,
    }
    const { assert!(std::mem::offset_of!(ProgramInfo, maps) == 52 && size_of::<ProgramInfo>() == 64) };
    let mut ids = [0u32];
    let mut found = ProgramInfo { maps: 1, ids: (&raw mut ids).addr() as u64, ..ProgramInfo::default() };
    read_info(program, &mut found)?;
    Ok((found.maps, ids))
}
