//! The kernel alone: XDP programs of a few instructions, until standard input ends.
//!
//! `redirect IF IF` sends packets from either interface out of the other; `drop IF` drops them.

// UNSAFETY: bpf(2) is called here, because the library loads only its own programs.
#![allow(unsafe_code)]

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use pagepool_link::Netlink;

/// Numbers of include/uapi/linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;
const DRIVER_MODE: u32 = 1 << 2;

pub fn run(words: &[&str]) -> Result<String, String> {
    let (what, links) = words.split_first().ok_or("use redirect IF IF, or drop IF")?;
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    let indices = links.iter().take(2).map(|link| netlink.link(link).map(|link| link.index));
    let indices: Vec<u32> = indices.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let programs: Vec<Vec<u64>> = match (*what, &indices[..]) {
        ("redirect", &[a, b]) => vec![redirect(b), redirect(a)],
        ("drop", &[_]) => vec![vec![0x1_0000_00b7, 0x95]], // r0 = XDP_DROP; exit
        _ => return Err("use redirect IF IF, or drop IF".into()),
    };
    let attach = |(program, &index): (&Vec<u64>, &u32)| load(program).and_then(|fd| link(fd, index));
    let attached: Result<Vec<OwnedFd>, _> = programs.iter().zip(&indices).map(attach).collect();
    let attached = attached.map_err(|error| format!("bpf: {error}"))?;
    let _ = io::stdin().read_to_end(&mut Vec::new()); // waits only for its end
    drop(attached);
    Ok(r#"{"receive":0}"#.into())
}

/// The instructions, for little-endian machines.
fn redirect(index: u32) -> Vec<u64> {
    vec![
        u64::from(index) << 32 | 0x01b7, // r1 = index
        0x02b7,                          // r2 = 0
        23 << 32 | 0x85,                 // r0 = bpf_redirect(r1, r2)
        0x95,                            // exit
    ]
}

fn load(program: &[u64]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u64; 2],
        version: u32,
        flags: u32,
        name: [u8; 16],
        index: u32,
        attach: u32,
    }
    let attributes = Load {
        kind: TYPE_XDP,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log: [0; 2],
        version: 0,
        flags: HAS_FRAGS,
        name: [0; 16],
        index: 0,
        attach: ATTACH_XDP,
    };
    make(PROG_LOAD, &attributes)
}

fn link(program: OwnedFd, index: u32) -> io::Result<OwnedFd> {
    make(LINK_CREATE, &[program.as_raw_fd() as u32, index, ATTACH_XDP, DRIVER_MODE])
}

fn make<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let at = std::ptr::from_ref(attributes);
    // SAFETY: the kernel reads the attributes and what they point to, which live as long as the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<T>()) };
    let Ok(fd @ 0..) = i32::try_from(fd) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the call just made this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
