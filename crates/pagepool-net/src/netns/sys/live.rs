//! Frames made by the kernel: `BPF_PROG_RUN` with live frames (linux/Documentation/bpf/bpf_prog_run.rst, since 5.18).

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Numbers of include/uapi/linux/bpf.h, v7.3.
const PROG_LOAD: libc::c_long = 5;
const PROG_RUN: libc::c_long = 10;
const TYPE_XDP: u32 = 6;
const LIVE_FRAMES: u32 = 2;
const BATCH: u32 = 64;

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    version_and_flags: [u32; 2],
}

/// The same for `BPF_PROG_TEST_RUN`, which is the older name.
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

const _: () = assert!(size_of::<Load>() == 48 && size_of::<Run>() == 80);

/// Loads a program that sends every frame out of one link.
pub(crate) fn load_redirect(index: u32) -> io::Result<OwnedFd> {
    let index = u64::from(index) << 32;
    // As machines have them whose lowest byte comes first; others refuse them.
    let program: [u64; 4] = [
        index | 0x01b7,  // r1 = index
        0x02b7,          // r2 = 0
        23 << 32 | 0x85, // r0 = bpf_redirect(r1, r2)
        0x95,            // return r0
    ];
    let attributes = Load {
        kind: TYPE_XDP,
        count: program.len() as u32,
        instructions: program.as_ptr().addr() as u64,
        license: c"GPL".as_ptr().addr() as u64,
        log: [0; 2],
        version_and_flags: [0; 2],
    };
    let at = &raw const attributes;
    // SAFETY: the kernel reads the attributes, the instructions and the license, which live as long as the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, at, size_of::<Load>()) };
    let Ok(fd @ 0..) = i32::try_from(fd) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the call just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs the program over so many copies of a frame, and returns when all are where it sent them.
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8], count: u32) -> io::Result<()> {
    let mut attributes = Run {
        program: program.as_raw_fd().cast_unsigned(),
        size_in: frame.len() as u32,
        data_in: frame.as_ptr().addr() as u64,
        repeat: count,
        flags: LIVE_FRAMES,
        batch: BATCH,
        ..Run::default()
    };
    let at = &raw mut attributes;
    // SAFETY: the kernel reads the frame, reads and writes the attributes, and writes to no place that they name, for
    // `data_out` is null; both live as long as the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, PROG_RUN, at, size_of::<Run>()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
