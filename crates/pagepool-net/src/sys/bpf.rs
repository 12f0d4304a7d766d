//! `bpf(2)`: XDP programs, their links, socket maps; traffic-control (tc) programs. Numbers and layouts are
//! those of include/uapi/linux/bpf.h (v7.3).

// UNSAFETY: system calls whose arguments contain addresses of memory.
#![expect(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::locked_memory;
use super::socket::descriptor;

pub(crate) mod assembler;
pub(crate) mod extension;

/// Commands. `libc` has only classic BPF.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const PROG_RUN: libc::c_int = 10;
const PROG_QUERY: libc::c_int = 16;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;

const MAP_TYPE_ARRAY: u32 = 2;
pub(crate) const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const LINK_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const ATTACH_TYPE_TCX_EGRESS: u32 = 47;
/// The XDP program accepts packets of several buffers; Linux 5.18.
pub(crate) const XDP_HAS_FRAGS: u32 = 1 << 5;
/// The XDP program is for one interface; Linux 6.3.
pub(crate) const XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
/// Exchanges a link's program only if the link runs the given one.
const REPLACE: u32 = 1 << 2;
/// The type of a BPF file system. Linux: `BPF_FS_MAGIC`, include/uapi/linux/magic.h.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The name of our maps and programs in the kernel's lists.
const NAME: [u8; 16] = *b"pagepool_xsk\0\0\0\0";

/// The kind of a BPF program, and its license.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For an interface. Packets of several buffers require Linux 5.18.
    Xdp { frags: bool },
    /// For the driver of this interface, which it can query about packets; Linux 6.3. The kernel functions
    /// for that require a GPL-compatible license. A dispatcher, which calls none, has the same license.
    XdpOf { interface: u32, frags: bool },
    /// For tc packets. The helper that reads a process's memory requires a GPL-compatible license: MIT, under
    /// the name "Dual MIT/GPL".
    Packet,
}

/// The licenses of our programs.
const MIT: &CStr = c"MIT";
const MIT_OR_GPL: &CStr = c"Dual MIT/GPL";

impl Kind {
    /// The load attributes that depend on the kind.
    fn attributes(self) -> Load {
        let with_frags = |frags| if frags { XDP_HAS_FRAGS } else { 0 };
        let (license, flags, ifindex) = match self {
            Self::Xdp { frags } => (MIT, with_frags(frags), 0),
            Self::XdpOf { interface, frags } => {
                (MIT_OR_GPL, with_frags(frags) | XDP_DEV_BOUND_ONLY, interface)
            }
            Self::Packet => return Load { prog_type: PROG_TYPE_SCHED_CLS, ..Load::licensed(MIT_OR_GPL) },
        };
        let (prog_type, attach_type) = (PROG_TYPE_XDP, ATTACH_TYPE_XDP);
        Load { prog_type, attach_type, flags, ifindex, ..Load::licensed(license) }
    }
}

/// An instruction. Linux: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    /// Destination in the lower four bits, source in the upper.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) imm: i32,
}

/// Makes a map from queue numbers to AF_XDP sockets.
pub(crate) fn create_socket_map(entries: u32) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_XSKMAP, 4, entries, 0)
}

/// Makes a map of `bytes` bytes that a BPF program may write to.
pub(crate) fn create_scratch(bytes: u32) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_ARRAY, bytes, 1, 0)
}

fn create_map(map_type: u32, value_size: u32, max_entries: u32, map_flags: u32) -> io::Result<OwnedFd> {
    let key_size = 4;
    // Two words for an inner map and a NUMA node, and the name.
    let mut words = [map_type, key_size, value_size, max_entries, map_flags, 0, 0, 0, 0, 0, 0];
    for (word, bytes) in words[7..].iter_mut().zip(NAME.as_chunks().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    make(MAP_CREATE, &words)
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Fails if the key has an entry. Linux: `BPF_NOEXIST`.
const NO_OTHER: u64 = 1;

/// Puts a bound socket into a map, if the key is free or has this socket; otherwise `EEXIST`.
pub(crate) fn set_socket(map: BorrowedFd<'_>, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd() as u32;
    let (key, value) = ((&raw const key) as u64, (&raw const value) as u64);
    let map = map.as_raw_fd() as u32;
    call(MAP_UPDATE_ELEM, &Element { map, key, value, flags: NO_OTHER, ..Element::default() }).map(drop)
}

pub(crate) fn clear_socket(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let key = (&raw const key) as u64;
    call(MAP_DELETE_ELEM, &Element { map: map.as_raw_fd() as u32, key, ..Element::default() }).map(drop)
}

/// A name in a BPF file system, and the object that has or gets it.
#[repr(C)]
#[derive(Default)]
struct Pinned {
    path: u64,
    object: u32,
    flags: u32,
}

/// Gives an object a name in a BPF file system. It then outlives its descriptors.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let object = object.as_raw_fd() as u32;
    call(OBJ_PIN, &Pinned { path: path.as_ptr().addr() as u64, object, ..Pinned::default() }).map(drop)
}

pub(crate) fn pinned(path: &CStr) -> io::Result<OwnedFd> {
    make(OBJ_GET, &Pinned { path: path.as_ptr().addr() as u64, ..Pinned::default() })
}

/// Whether a folder is in a BPF file system.
pub(crate) fn has_names(folder: &CStr) -> io::Result<bool> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the kernel reads the path up to its NUL, and writes no more than the structure.
    let result = unsafe { libc::statfs(folder.as_ptr(), found.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel wrote all of it.
    let found = unsafe { found.assume_init() };
    Ok(found.f_type as u32 == BPF_FS_MAGIC)
}

/// The type of a map, the bytes of a key and of a value, and the number of entries. Another object has other
/// numbers there.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<(u32, [u32; 3])> {
    let [map_type, _, key, value, entries] = info(map)?;
    Ok((map_type, [key, value, entries]))
}

/// The id of the program that an XDP link runs, and its interface: 0 if it was detached or the interface is
/// gone. `InvalidInput` for another link or object.
pub(crate) fn xdp_link(link: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    match info(link)? {
        // XDP programs and one type of map also have 6 as their type. In place of the 0 they have part of a
        // hash, or the bytes of a value.
        [LINK_TYPE_XDP, _, program, 0, interface] => Ok((program, interface)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[repr(C)]
#[derive(Default)]
struct Load {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kern_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
    /// The BTF of the program; below, its functions in it.
    types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    /// `attach_btf_id`: the function of another program that this one replaces.
    replaced: u32,
    of_program: u32,
    relocations: u32,
}

const _: () = assert!(std::mem::offset_of!(Load, replaced) == 108 && size_of::<Load>() == 120);

impl Load {
    fn licensed(license: &'static CStr) -> Self {
        Self { license: license.as_ptr().addr() as u64, name: NAME, ..Self::default() }
    }

    /// Loads this program.
    fn program(self, program: &[Insn]) -> io::Result<OwnedFd> {
        let (insn_count, insns) = (program.len() as u32, program.as_ptr().addr() as u64);
        make(PROG_LOAD, &Self { insn_count, insns, ..self })
    }
}

pub(crate) fn load(program: &[Insn], kind: Kind) -> io::Result<OwnedFd> {
    kind.attributes().program(program)
}

/// Loads a program under another name than ours.
#[cfg(test)]
pub(crate) fn load_as(name: [u8; 16], program: &[Insn], kind: Kind) -> io::Result<OwnedFd> {
    Load { name, ..kind.attributes() }.program(program)
}

/// Attaches an XDP program to an interface while the descriptor lives: in the driver (`native`) or before the
/// stack.
pub(crate) fn attach(program: BorrowedFd<'_>, index: u32, native: bool) -> io::Result<OwnedFd> {
    let flags = if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
    make(LINK_CREATE, &[program.as_raw_fd() as u32, index, ATTACH_TYPE_XDP, flags])
}

/// Exchanges the program of a link. With `old`, only if the link runs that; otherwise `EPERM`.
pub(crate) fn exchange(
    link: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    old: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let (flags, old) = old.map_or((0, 0), |old| (REPLACE, old.as_raw_fd() as u32));
    call(LINK_UPDATE, &[link.as_raw_fd() as u32, program.as_raw_fd() as u32, flags, old]).map(drop)
}

/// Attaches a tc program to the egress of an interface, behind others, while the descriptor lives; Linux 6.6.
#[cfg(test)]
pub(crate) fn attach_to_egress(program: BorrowedFd<'_>, index: u32) -> io::Result<OwnedFd> {
    make(LINK_CREATE, &[program.as_raw_fd() as u32, index, ATTACH_TYPE_TCX_EGRESS, 0, 0, 0, 0, 0])
}

/// Detaches the program of a link now, even if a child process still has the descriptor; Linux 5.11.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    call(LINK_DETACH, &[link.as_raw_fd() as u32]).map(drop)
}

/// Opens the BPF program with this id; requires `CAP_SYS_ADMIN`.
pub(crate) fn program(id: u32) -> io::Result<OwnedFd> {
    make(PROG_GET_FD_BY_ID, &[id, 0, 0])
}

pub(crate) fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    let [_, id] = info(program)?;
    Ok(id)
}

/// The name of a BPF program, if it has one; `None` also without `CAP_SYS_ADMIN`.
pub(crate) fn program_name(id: u32) -> Option<String> {
    name_of(program(id).ok()?.as_fd())
}

pub(crate) fn name_of(program: BorrowedFd<'_>) -> Option<String> {
    let words: [u32; 20] = info(program).ok()?;
    let name: Vec<u8> =
        words[16..].iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// Whether a program of this name may be ours.
pub(crate) fn is_ours(name: &str) -> bool {
    name.bytes().eq(NAME.into_iter().take_while(|&byte| byte != 0))
}

/// Whether the program with this id is certainly not ours: it has another name.
pub(crate) fn is_of_others(id: u32) -> bool {
    program_name(id).is_some_and(|name| !is_ours(&name))
}

/// The first words of the kernel's information about an object: type, id, and more.
fn info<const N: usize>(object: BorrowedFd<'_>) -> io::Result<[u32; N]> {
    let mut info = [0u32; N];
    read_info(object, &mut info)?;
    Ok(info)
}

/// Fills `info`, which consists of integers, with the kernel's information about an object. The kernel also
/// writes to addresses in `info`, for which the caller vouches.
fn read_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct GetInfo {
        fd: u32,
        len: u32,
        info: u64,
    }
    let fd = object.as_raw_fd() as u32;
    let (len, info) = (size_of_val(info) as u32, std::ptr::from_mut(info).addr() as u64);
    call_mut(OBJ_GET_INFO_BY_FD, &mut GetInfo { fd, len, info }).map(drop) // the kernel writes `len`, too
}

/// The number of tc programs at the egress of an interface; Linux 6.6. Earlier kernels attach them to a
/// queueing discipline.
pub(crate) fn egress_programs(index: u32) -> io::Result<u32> {
    /// Whole, because the kernel writes the revision even beyond the given length.
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        index: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        ids: u64,
        count: u32,
        padding: u32,
        lists: [u64; 3],
        revision: u64,
    }
    const { assert!(std::mem::offset_of!(Query, revision) == 56 && size_of::<Query>() == 64) };
    let mut query = Query { index, attach_type: ATTACH_TYPE_TCX_EGRESS, ..Query::default() };
    call_mut(PROG_QUERY, &mut query).map(|_| query.count)
}

/// Attributes of a program run. The kernel writes the last result and the duration.
#[repr(C)]
#[derive(Default)]
struct Run {
    program: u32,
    returned: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size: u32,
    context_size_out: u32,
    context: u64,
    context_out: u64,
}

/// Runs an XDP program on one frame, which is not sent. Returns the program's result.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn run_frame(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let place = (frame.as_ptr().addr() as u64, frame.len() as u32);
    run(program, place, Run { repeat: 1, ..Run::default() })
}

/// Words of a packet's context before the caller's. Linux: `offsetof(struct __sk_buff, cb)`.
pub(crate) const OWN_WORDS: usize = 12;

/// Runs a tc program on one packet, with two words in its context. Returns the program's result. The packet's
/// device is the loopback of this thread's network namespace. The packet begins as a copy of `len` bytes at
/// `addr`, if they belong to this process.
pub(crate) fn run_packet(program: BorrowedFd<'_>, packet: (u64, u32), words: [u32; 2]) -> io::Result<u32> {
    let mut context = [0u32; OWN_WORDS + 2];
    context[OWN_WORDS..].copy_from_slice(&words);
    let (context_size, context) = (size_of_val(&context) as u32, context.as_ptr().addr() as u64);
    run(program, packet, Run { repeat: 1, context_size, context, ..Run::default() })
}

fn run(program: BorrowedFd<'_>, (data_in, size_in): (u64, u32), how: Run) -> io::Result<u32> {
    let mut run = Run { program: program.as_raw_fd() as u32, size_in, data_in, ..how };
    call_mut(PROG_RUN, &mut run)?;
    Ok(run.returned)
}

fn make<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let made = call(command, attributes).or_else(|error| {
        if error.raw_os_error() != Some(libc::EPERM) {
            return Err(error);
        }
        // Before Linux 5.11 programs and maps count as locked memory, whose default limit is 64 KiB.
        locked_memory::end_limit();
        call(command, attributes)
    })?;
    // SAFETY: the call just made this descriptor, and nothing else has it.
    unsafe { descriptor(made) }
}

/// Attributes are integers without padding; addresses in them are valid during the call.
fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    raw_call(command, std::ptr::from_ref(attributes).cast(), size_of::<T>())
}

/// For a command that also writes to its attributes.
fn call_mut<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    raw_call(command, std::ptr::from_mut(attributes).cast_const().cast(), size_of::<T>())
}

fn raw_call(command: libc::c_int, attributes: *const u8, len: usize) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the attributes, writes results to those of `call_mut`, and accesses the memory
    // that they point to, for which each caller vouches.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, len as libc::c_uint) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
