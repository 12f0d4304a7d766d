//! `bpf(2)`: XDP programs that send copies of a frame (linux/Documentation/bpf/bpf_prog_run.rst). Numbers and
//! layouts are those of include/uapi/linux/bpf.h (v7.3).

// UNSAFETY: system calls whose arguments contain addresses of memory.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use pagepool_link::sys::socket::descriptor;

const PROG_LOAD: libc::c_int = 5;
const PROG_RUN: libc::c_int = 10;
const PROG_TYPE_XDP: u32 = 6;
/// Really sends the frames of a program run where it redirects them; Linux 5.18.
const RUN_LIVE_FRAMES: u32 = 1 << 1;
/// Most live frames at once.
const RUN_BATCH: u32 = 64;

/// An instruction. Linux: `struct bpf_insn`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    /// Destination in the lower four bits, source in the upper.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) imm: i32,
}

pub(crate) fn load_xdp(program: &[Insn]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        prog_type: u32,
        insn_count: u32,
        insns: u64,
        license: u64,
    }
    let (insn_count, insns) = (program.len() as u32, program.as_ptr().addr() as u64);
    let license = c"MIT".as_ptr().addr() as u64;
    let made = call(PROG_LOAD, &mut Load { prog_type: PROG_TYPE_XDP, insn_count, insns, license })?;
    // SAFETY: the call just made this descriptor, and nothing else has it.
    unsafe { descriptor(made) }
}

/// Runs an XDP program on `count` copies of a frame. Returns when all are where it sent them.
pub(crate) fn run_live(program: BorrowedFd<'_>, frame: &[u8], count: u32) -> io::Result<()> {
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
        context_sizes: [u32; 2],
        contexts: [u64; 2],
        flags: u32,
        cpu: u32,
        batch: u32,
        padding: u32,
    }
    let (program, repeat, flags) = (program.as_raw_fd() as u32, count, RUN_LIVE_FRAMES);
    let (size_in, data_in, batch) = (frame.len() as u32, frame.as_ptr().addr() as u64, RUN_BATCH);
    call(PROG_RUN, &mut Run { program, size_in, data_in, repeat, flags, batch, ..Run::default() }).map(drop)
}

/// Attributes are integers without padding, and addresses of memory that lives as long as the call. The
/// kernel may write results to them.
fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let (at, len) = (std::ptr::from_mut(attributes), size_of::<T>() as libc::c_uint);
    // SAFETY: the kernel reads and writes the attributes, and reads the memory that they point to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
